"""Generate docs/states.md from the table of states: `python -m scripts.states`."""

from pathlib import Path

from core.domain.states import mermaid

TEXT = """# States of a simulation

Generated from `core/domain/states.py` by `python -m scripts.states`; a test fails if they differ.

```mermaid
{picture}```

| state | meaning |
|---|---|
| queued | accepted, waiting for the import of its model or for free workers; see `position` and `reason` |
| staging | admitted; its environments, model and files are being downloaded to the node cache |
| launching | handed to an executor; no task is leased yet |
| running | the first task was leased |
| cancelling | cancelled by its owner; runners may not have ended yet |
| succeeded | every task has a result; at least one is `ok`, and at most `max_failures` are not |
| failed | caused by the model or the simulator: cannot be imported, does not load or fit, is too slow, or fails |
| errored | caused by the platform, which has no retries left |
| cancelled | stopped by its owner; its results so far are kept |

A retry by the platform is the transition back to `queued`; it increments `attempt`. A user's retry is a new simulation.
"""

if __name__ == "__main__":
    Path("docs/states.md").write_text(TEXT.format(picture=mermaid()))
