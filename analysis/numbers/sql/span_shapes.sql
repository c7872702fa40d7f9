-- What takes few values in spans? One row per shape of the spans that are stored, with the region that its service says of itself.
select shape, service, stage, role, kind, operation, model, http_status, error_type, resource_attributes['cloud.region'] as own_region
from v_shapes
