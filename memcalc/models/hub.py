"""A model's config.json from the Hugging Face Hub: the local cache first, then the network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memcalc.errors import InputError
from memcalc.models.files import MAX_FILE_BYTES

FILE = "config.json"


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a repository: ``org/name``.

    >>> is_hub_id("meta-llama/Llama-2-7b-hf"), is_hub_id("./llama"), is_hub_id("a/b/c")
    (True, False, False)
    """
    return re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", name) is not None


def is_cached(repo_id: str) -> bool:
    """Whether the local cache may hold files of a repository; huggingface_hub, which is slow to import, need not be asked where it does not."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")  # noqa: PTH111, PTH118
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")  # noqa: PTH118 (imports nothing)
    return os.path.isdir(os.path.join(os.path.expanduser(cache), f"models--{repo_id.replace('/', '--')}"))  # noqa: PTH111, PTH112, PTH118


def config_file(repo_id: str) -> Path:
    """The config.json of a repository on this machine, downloaded if it is not in the cache.

    ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_TOKEN``, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` are huggingface_hub's and work as there. Nothing
    but this one file is read, and no code from the repository.

    Raises:
        InputError: it cannot be had; the message says what to do.
    """
    try:
        from huggingface_hub import constants
        from huggingface_hub import errors as hub
    except ImportError as error:
        message = f"is not in the catalogue, and huggingface_hub, which would fetch it, cannot be imported ({error}); give a path to its config.json"
        raise InputError(message, where=repo_id) from None
    endpoint = constants.ENDPOINT
    try:
        return _fetched(repo_id)
    except hub.GatedRepoError:
        message = f"is gated: accept its terms at {endpoint}/{repo_id}, then set HF_TOKEN or run `hf auth login`; or give a path to its config.json"
    except hub.RepositoryNotFoundError:
        message = f"no such repository at {endpoint}, or a private one: check the spelling, or set HF_TOKEN if it is private"
    except (hub.OfflineModeIsEnabled, hub.LocalEntryNotFoundError):
        message = "is not in the local cache, and HF_HUB_OFFLINE is set: unset it, or give a path to its config.json"
    except hub.EntryNotFoundError:
        message = f"the repository has no {FILE} (adapters and GGUF files have none): give the id of the base model"
    except hub.HFValidationError as error:
        message = f"is not a Hub id: {error}"
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 (which library carries the requests, and so what it raises, changes between versions)
        message = _failed(error, endpoint)
    raise InputError(message, where=repo_id)


def _fetched(repo_id: str) -> Path:
    """From the cache, or else from the Hub: asked once, since huggingface_hub would ask an unreachable one for half a minute."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    cached = try_to_load_from_cache(repo_id, FILE)
    if isinstance(cached, str):
        return Path(cached)
    with _quiet():
        size = get_hf_file_metadata(hf_hub_url(repo_id, FILE), timeout=constants.HF_HUB_ETAG_TIMEOUT).size
        if size is not None and size > MAX_FILE_BYTES:
            raise InputError(f"its {FILE} holds {size / 2**20:,.0f} MiB, far more than a model's", where=repo_id)
        return Path(hf_hub_download(repo_id, FILE))


def _failed(error: Exception, endpoint: str) -> str:
    """What went wrong with a request, and what to do."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in {401, 403}:
        return f"{endpoint} refuses access ({status}): set HF_TOKEN to a valid token that may read it, or give a path to its config.json"
    if status is not None:
        return f"is not in the local cache, and {endpoint} answers {status}: try again later, or give a path to its config.json"
    return (
        f"is not in the local cache, and {endpoint} cannot be reached ({_reason(error)}): check the network (HF_ENDPOINT names a mirror), "
        "or give a path to its config.json"
    )


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."


@contextmanager
def _quiet() -> Iterator[None]:
    """huggingface_hub says nothing meanwhile: no bar for a file of a few kB, no warning beside the one line of an error."""
    import warnings

    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    level, bars = logging.get_verbosity(), not are_progress_bars_disabled()
    logging.set_verbosity(50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if bars:
            disable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                enable_progress_bars()
