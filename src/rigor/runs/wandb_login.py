"""Whether W&B can be reached, checked quickly: W&B's own client prompts, or waits for days."""

import netrc
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from rigor.errors import UserError

_TIMEOUT = 10  # seconds for W&B to answer


def has_key() -> bool:
    """Return whether W&B would find a key, without importing W&B or using the network."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(base_url()).netloc
    named = os.environ.get("NETRC")
    for path in [named] if named else ["~/.netrc", "~/_netrc"]:
        try:
            found = netrc.netrc(os.path.expanduser(path)).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            continue
        if found and found[2]:
            return True
    return False


def base_url() -> str:
    """Return the address of W&B's server."""
    return os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"


def require_connection(consequence: str) -> None:
    """Raise a `UserError` if there is no key or the server does not answer.

    Args:
      consequence: the end of the message, such as `the dashboard is not saved`.
    """
    if not has_key():
        raise UserError(f"no W&B key: run `wandb login` or set WANDB_API_KEY; {consequence}")
    try:
        with urllib.request.urlopen(base_url(), timeout=_TIMEOUT):
            pass
    except urllib.error.HTTPError:
        pass  # an error page is an answer
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"{base_url()}: no answer ({reason}); use a machine that reaches it, or correct "
            f"WANDB_BASE_URL; {consequence}"
        ) from error
