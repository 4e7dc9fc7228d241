"""Write docs/states.md from the table of states: `python -m scripts.states`."""

from pathlib import Path

from core.domain.states import mermaid

TEXT = """# States of a simulation

Drawn from `core/domain/states.py` by `python -m scripts.states`; a test holds the two together.

```mermaid
{picture}```

| state | what it means |
|---|---|
| queued | accepted, waiting for room; `position` and `reason` say why |
| staging | admitted; its environment, model and files are being brought near |
| launching | handed to an executor, no lease taken yet |
| running | the first lease was taken |
| cancelling | its owner asked for a stop; runners may still run |
| succeeded | every task has a result, and not more of them failed than `max_failures` allows |
| failed | the model or the simulator is to blame: does not load or fit, is not done in time, fails too often |
| errored | the platform is to blame, and is out of retries |
| cancelled | stopped by its owner; what was there is kept |

The platform's own retry is the arrow back to `queued`, with `attempt` one higher. A user's retry is a new simulation.
"""

if __name__ == "__main__":
    Path("docs/states.md").write_text(TEXT.format(picture=mermaid()))
