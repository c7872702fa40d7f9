"""How does a LiteLLM router place requests by predicted length? A custom routing strategy around `overrun.models.balancer`.

    router = litellm.Router(model_list=[...])
    strategy = LengthRouting(router, "artifact/")
    router.set_custom_routing_strategy(strategy)

LiteLLM is not among our dependencies; it is imported here, and `make check-litellm` runs this against the real one.
"""

# mypy: disable-error-code="misc, untyped-decorator"

import uuid
from pathlib import Path
from typing import Any, Final

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.router import CustomRoutingStrategyBase

from overrun.models.balancer import Balancer
from overrun.models.predict import Predictor

# Where the identity of a request travels from the choice to the callback.
_KEY: Final = "overrun_request"
# English text has about four characters a token; only a share of a prompt's cost hangs on it.
_CHARACTERS_PER_TOKEN: Final = 4


class LengthRouting(CustomRoutingStrategyBase):  # type: ignore[misc, unused-ignore]
    """Chooses the deployment with the least predicted work outstanding among those of the asked model that are healthy."""

    def __init__(self, router: litellm.Router, artifact: str | Path) -> None:
        """Load the artifact and listen to finished requests.

        Raises:
            ArtifactError: it does not load.
        """
        self.balancer = Balancer(Predictor.load(artifact))
        self._router = router
        litellm.callbacks.append(_Finished(self.balancer))

    async def async_get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the deployment for a request, as LiteLLM asks for it."""
        healthy, _ = await self._router._async_get_healthy_deployments(
            model=model, parent_otel_span=None
        )
        return self._choose(model, messages, healthy, request_kwargs)

    def get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the deployment for a blocking request."""
        healthy, _ = self._router._get_healthy_deployments(model=model, parent_otel_span=None)
        return self._choose(model, messages, healthy, request_kwargs)

    def _choose(
        self,
        model: str,
        messages: Any,
        healthy: list[dict[str, Any]],
        request_kwargs: dict[str, Any] | None,
    ) -> Any:
        found = {str(one["model_info"]["id"]): one for one in healthy if one["model_name"] == model}
        if not found:
            raise ValueError(f"no healthy deployment of {model!r}: see the router's cooldowns")
        given = request_kwargs if request_kwargs is not None else {}
        identity = uuid.uuid4().hex
        given.setdefault("metadata", {})[_KEY] = identity
        chosen = self.balancer.choose(identity, _row(model, messages, given), list(found))
        return found[str(chosen)]


def _row(model: str, messages: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a request before it is sent; `metadata.route` and `metadata.session` name these."""
    metadata = given.get("metadata") or {}
    texts = [_text(one.get("content")) for one in messages or [] if isinstance(one, dict)]
    row = {
        "model": model,
        "route": metadata.get("route"),
        "session": metadata.get("session"),
        "input_tokens": sum(map(len, texts)) // _CHARACTERS_PER_TOKEN,
        "max_tokens": given.get("max_tokens") or given.get("max_completion_tokens"),
        "temperature": given.get("temperature"),
        "stream": given.get("stream"),
    }
    return row | ({"prompt": texts[-1]} if texts else {})


def _text(content: Any) -> str:
    """Return the text of a message; of one in parts, without images and files, whose bytes are no words."""
    if isinstance(content, list):
        return "\n".join(
            one["text"]
            for one in content
            if isinstance(one, dict) and isinstance(one.get("text"), str)
        )
    return str(content or "")


class _Finished(CustomLogger):  # type: ignore[misc, unused-ignore]
    """Tells the balancer what each request generated, or that it failed."""

    def __init__(self, balancer: Balancer) -> None:
        super().__init__()
        self._balancer = balancer

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        usage = getattr(response_obj, "usage", None)
        self._end(kwargs, None if usage is None else int(usage.completion_tokens))

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._end(kwargs, None)

    def _end(self, kwargs: dict[str, Any], output_tokens: int | None) -> None:
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        if isinstance(metadata.get(_KEY), str):
            self._balancer.finished(metadata[_KEY], output_tokens)
