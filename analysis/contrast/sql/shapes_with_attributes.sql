-- Which attribute keys do spans have, and what do their resources say? One row per shape of the spans that are stored.
select shape, keys, resource_attributes from v_shapes
