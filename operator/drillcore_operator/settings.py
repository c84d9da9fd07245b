"""The operator's settings: environment variables with the prefix DRILLCORE_OPERATOR_, read once at start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from drillcore_operator.errors import SettingsError
from drillcore_operator.resources import PodDefaults
from drillcore_spec import names

PREFIX = "DRILLCORE_OPERATOR_"


def _words(text: Any) -> Any:
    return tuple(text.split()) if isinstance(text, str) else text


class Settings(BaseModel):
    """One attribute for each variable; the variable is the attribute's name in capitals, after the prefix."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    server_image: Annotated[str, Field(min_length=1)]
    """Image of the server container, unless a job names one."""
    sidecar_image: Annotated[str, Field(min_length=1)]
    """Image of the sidecar container."""
    advertise_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*[^\s/])?$")]
    """Where pods reach the job-status API; no slash at the end."""
    api_ca_file: Path | None = None
    """Certificate authority of that URL, PEM. None: plain HTTP, or an authority that the image knows."""
    api_certificate_file: Path | None = None
    """Certificate of the job-status API, PEM; read again when it changes. None: plain HTTP."""
    api_key_file: Path | None = None
    """Key of that certificate, PEM."""
    api_port: Annotated[int, Field(ge=1, le=65535)] = names.API_PORT
    """Port of the job-status API and of the probes."""
    namespaces: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    """Namespaces to serve, separated by spaces; empty: the whole cluster."""
    kueue_enabled: bool = False
    """Whether Kueue is installed and the operator may suspend its workloads."""
    num_workers: Annotated[int, Field(ge=1, le=64)] = 16
    """Jobs that are looked at at the same time; each waits for the API server most of the time."""
    resync_interval_s: Annotated[float, Field(gt=0)] = 300.0
    """How often all jobs are listed and looked at, as a safety net below the watches."""
    status_interval_s: Annotated[float, Field(ge=0)] = 15.0
    """Progress alone changes a job's status at most this often; a condition does so at once."""
    progress_looks_per_second: Annotated[float, Field(gt=0)] = 20.0
    """Most looks a second at jobs of which nothing but progress is known, all jobs together.

    A look is two reads and a write. With more jobs than this times the status interval, or when the API server is slow,
    each job's status follows its progress later.
    """
    requests_per_second: Annotated[float, Field(gt=0)] = 200.0
    """Most API requests a second, all jobs together: a share of the API server that never hurts others."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Reads the variables with our prefix.

        Raises:
            SettingsError: A variable is missing, unknown or not of its form.
        """
        values = {
            name.removeprefix(PREFIX).lower(): value for name, value in environment.items() if name.startswith(PREFIX)
        }
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError("; ".join(map(_problem, error.errors(include_url=False)))) from None

    def pod_defaults(self) -> PodDefaults:
        """What goes from here into every child Job; reads the authority's file."""
        return PodDefaults(
            server_image=self.server_image,
            sidecar_image=self.sidecar_image,
            api_url=self.advertise_url,
            api_ca=self.api_ca_file.read_text() if self.api_ca_file else None,
        )


def _problem(error: Any) -> str:
    variable = PREFIX + "_".join(str(part) for part in error["loc"]).upper()
    return f"{variable}: {error['msg']}; got {error.get('input')!r}"
