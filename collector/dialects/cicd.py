"""Pipelines and deployments: what a CI system, a deployment tool or an application reports of them.

Source: OpenTelemetry's registry of attributes (`cicd.*`, `deployment.*`), which its collector's receivers for GitHub and GitLab and exporters of workflows
(corentinmusard/otel-cicd-action) send. A span of a pipeline is no part of a request. Which of them are deployments: collector/sources/deployments.py.
"""

from overrun.collector.dialects import Dialect

ORDER = 95
DIALECT = Dialect(
    name="cicd",
    prefixes=("cicd.", "deployment.id", "deployment.name", "deployment.status"),
)
