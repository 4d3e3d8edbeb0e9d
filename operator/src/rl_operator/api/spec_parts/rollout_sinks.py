"""Where runs keep their rollouts for good: a runtime's claim, or its bucket."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from rl_contract.env_vars import STORE_KEYS
from rl_operator.api.model import ApiModel, validated

ONE_SINK: Final = "name exactly one of persistentVolumeClaim and objectStore"

ONE_AUTHORITY: Final = "name exactly one of configMap and secret"

BUCKET_PATTERN: Final = r"^s3://[a-z0-9][a-z0-9.-]{2,62}(/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*/?$"
SERVER_PATTERN: Final = r"^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?/?$"
REGION_PATTERN: Final = "^[A-Za-z0-9-]+$"
REFERRED_PATTERN: Final = "^[a-z0-9][-.a-z0-9]*$"

KEY_PATTERN: Final = "^[-._a-zA-Z0-9]+$"

ReferredName = Annotated[str, Field(max_length=253, pattern=REFERRED_PATTERN)]


class RolloutClaim(ApiModel):
    """A PersistentVolumeClaim of the run's namespace; each run has a folder of its own in it."""

    claim_name: ReferredName = Field(
        description="Its name. Where runs train on several nodes, its access mode must be ReadWriteMany."
    )


class CertificatesKey(ApiModel):
    """A key of a ConfigMap or of a Secret in the run's namespace, with certificates in PEM."""

    name: ReferredName = Field(description="Its name.")
    key: str = Field(default="ca.crt", max_length=253, pattern=KEY_PATTERN, description="Key in it.")


class CertificateAuthority(ApiModel):
    """Whom to trust besides the authorities that the image trusts."""

    model_config = ConfigDict(json_schema_extra=validated("has(self.configMap) != has(self.secret)", ONE_AUTHORITY))

    config_map: CertificatesKey | None = Field(default=None, description="In a ConfigMap.")
    secret: CertificatesKey | None = Field(default=None, description="In a Secret: of it, only this key is mounted.")


class ObjectStore(ApiModel):
    """A bucket of S3, or of a server that speaks its protocol."""

    url: str = Field(
        max_length=512,
        pattern=BUCKET_PATTERN,
        description="s3://BUCKET/FOLDER; a run's files are below it, in NAMESPACE/NAME-UID.",
    )
    endpoint: str | None = Field(
        default=None,
        max_length=512,
        pattern=SERVER_PATTERN,
        description="URL of the server, such as https://minio.storage.svc:9000; default: Amazon's.",
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        pattern=REGION_PATTERN,
        description="Region of the bucket; default: us-east-1.",
    )
    secret_name: ReferredName | None = Field(
        default=None,
        description=f"Secret in the run's namespace with {' and '.join(STORE_KEYS)}; default: what the pod's or the "
        "node's own identity may do. Only the trainer gets it.",
    )
    certificate_authority: CertificateAuthority | None = Field(
        default=None, description="Of the server's certificate, if it is not one that the image trusts."
    )


class RuntimeRollouts(ApiModel):
    """Where the rollouts of a runtime's runs are kept for good."""

    model_config = ConfigDict(
        json_schema_extra=validated("has(self.persistentVolumeClaim) != has(self.objectStore)", ONE_SINK)
    )

    persistent_volume_claim: RolloutClaim | None = Field(default=None, description="In a volume.")
    object_store: ObjectStore | None = Field(default=None, description="In a bucket.")
