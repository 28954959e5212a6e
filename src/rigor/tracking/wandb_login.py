"""Whether there is a way to W&B, told in a moment; its own client would ask, or wait for days."""

import netrc
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from rigor.errors import UserError

_PATIENCE = 10  # seconds that W&B has to answer


def has_key() -> bool:
    """Tell whether W&B would find a key, without importing it and without the network."""
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
    """Return where W&B's server is."""
    return os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"


def refuse_no_way(waiting: str) -> None:
    """Raise a `UserError` where there is no key or no answer.

    Args:
      waiting: what has become of the work, for the end of the line.
    """
    if not has_key():
        raise UserError(f"no W&B key: run `wandb login` or set WANDB_API_KEY; {waiting}")
    try:
        with urllib.request.urlopen(base_url(), timeout=_PATIENCE):
            pass
    except urllib.error.HTTPError:
        pass  # somebody answers
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"{base_url()}: no answer ({reason}); go where it can be reached, or correct "
            f"WANDB_BASE_URL; {waiting}"
        ) from error
