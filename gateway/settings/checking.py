"""Options that need each other, or leave each other no room: what none can tell alone.

Nothing is opened or asked here: what files hold is told by whoever reads them.
"""

from gateway.errors import ConfigError
from gateway.settings.access_config import AccessConfig
from gateway.settings.config import Config, event_topics, worker_specs
from gateway.settings.render_config import RenderConfig
from gateway.settings.shared_config import SharedConfig
from gateway.settings.tls_config import TlsConfig


def check(config: SharedConfig) -> None:
    """Raises ConfigError, one line that names the option; so do the others."""
    check_tls(config)
    if isinstance(config, RenderConfig) and config.model is None:
        raise ConfigError("--model DIR_OR_ID is missing")
    if isinstance(config, Config):
        check_workers(config)
        check_access(config)
        check_worker_tls(config)
        _check_ports(config)


def check_workers(config: Config) -> None:
    """Whether something names workers; what is said of a worker is said of one."""
    if not (config.workers or config.workers_file or config.discovers):
        others = "--workers-file, --workers-dns or --workers-k8s"
        raise ConfigError(f"--workers URL[,URL...] is missing, or {others}")
    worker_specs(config)
    event_topics(config)


def check_tls(config: TlsConfig) -> None:
    """The server's side."""
    if config.tls_cert is None and (config.tls_key or config.tls_client_ca):
        raise ConfigError("--tls-key and --tls-client-ca need --tls-cert")


def check_access(config: AccessConfig) -> None:
    """Keys of clients."""
    if config.cache_per_client and config.api_keys_file is None:
        raise ConfigError("--cache-per-client is of no use without --api-keys-file")


def check_worker_tls(config: AccessConfig) -> None:
    """What workers are shown."""
    if config.worker_key is not None and config.worker_cert is None:
        raise ConfigError("--worker-key needs --worker-cert")


def _check_ports(config: Config) -> None:
    if config.processes > 1 and config.admin_port is None:
        raise ConfigError("--processes above 1 needs --admin-port")
    operators = config.admin_host or config.host, config.admin_port
    if config.port and operators == (config.host, config.port):
        raise ConfigError(f"--admin-port {config.port} is the port of clients")
