"""Documented paths: how other systems' public documents describe the tasks of the benchmark of a person's paths.

Of several documented ways the one with the fewest gestures is here. A path begins at the system's own beginning: W&B's
project page, Backend.AI's page after the sign-in, a prompt with OSMO's client signed in. Where a document leaves a
click open, it is not counted. Identifiers are those of the documents.
"""

from dataclasses import dataclass

from benchmarks.gestures import Step, choose, click, command, write

#: Day on which the documents were read.
READ = "2026-11-25"
_WANDB = "https://docs.wandb.ai"
#: Documents in repositories, at the commits that were read.
_OSMO = "https://github.com/NVIDIA/OSMO/blob/1da31e19/docs/user_guide"
_OSMO_CLI = "https://nvidia.github.io/OSMO/release/6.3/user_guide/appendix/cli/cli_workflow.html"
_WEBUI = "https://github.com/lablup/backend.ai-webui/blob"
_SESSIONS = f"{_WEBUI}/0386331e/packages/backend.ai-webui-docs/src/en/sessions_all/sessions_all.md"
_FOLDERS = f"{_WEBUI}/073c45c3/packages/backend.ai-webui-docs/src/en/vfolder/vfolder.md"
NOT_OFFERED, NOT_DOCUMENTED = "not offered", "not documented"
SYSTEMS = ("W&B", "OSMO", "Backend.AI")


@dataclass(frozen=True, slots=True)
class DocumentedPath:
    """A path by a system's documents: its steps, or without any why there is none; ``remark``: what it presumes."""

    task: str
    system: str
    address: str
    steps: tuple[Step, ...] = ()
    missing: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        assert bool(self.steps) != bool(self.missing), (self.task, self.system)


#: W&B: start a job of Launch.
_LAUNCH = (
    click("Jobs"),
    click("Launch"),
    choose("the job's version"),
    choose("the queue"),
    choose("the project"),
    click("Launch now"),
)
#: Backend.AI: start one of the last five sessions again.
_START_AGAIN = (
    click("Sessions"),
    click("Start Session"),
    click("Recent History"),
    click("the session"),
    click("Launch"),
)
DOCUMENTED = (
    DocumentedPath(
        "submit",
        "W&B",
        f"{_WANDB}/platform/launch/add-job-to-queue",
        (
            command("wandb artifact put -n p/candidate policy.onnx"),
            *_LAUNCH,
        ),
        remark="if a job evaluates the newest version of that artifact, and Launch has an agent and a queue",
    ),
    DocumentedPath(
        "submit",
        "OSMO",
        f"{_OSMO}/tutorials/advanced_patterns.rst",
        (command("osmo workflow submit evaluate.yaml"),),
        remark="if a workflow is written that names the file as `localpath` and evaluates it",
    ),
    DocumentedPath(
        "submit",
        "Backend.AI",
        _FOLDERS,
        (
            click("Data"),
            click("the folder"),
            click("Upload"),
            choose("the file"),
            *_START_AGAIN,
        ),
        remark="if a batch session that evaluates the file of that name is among the last five",
    ),
    DocumentedPath(
        "running",
        "W&B",
        f"{_WANDB}/models/runs/run-states",
        (click("Runs"), click("the run")),
        remark="the run's overview is open then",
    ),
    DocumentedPath(
        "running",
        "OSMO",
        f"{_OSMO}/tutorials/hello_world/index.rst",
        (command("osmo workflow query hello-osmo-1"),),
        remark="the state at that moment; again for each look",
    ),
    DocumentedPath("running", "Backend.AI", _SESSIONS, (click("Sessions"), click("the session"))),
    DocumentedPath(
        "worst",
        "W&B",
        f"{_WANDB}/models/tables/tables-walkthrough",
        (click("the run"), click("the column's menu"), click("Sort ascending"), click("the video")),
        remark="if the program logs a table with a video of each scenario; clicks of the sort as documented for runs",
    ),
    DocumentedPath(
        "worst",
        "OSMO",
        f"{_OSMO}/how_to/reinforcement_learning.rst",
        missing=NOT_OFFERED,
        remark="results are files of the task in a bucket; videos among them are downloaded and searched by hand",
    ),
    DocumentedPath("worst", "Backend.AI", _FOLDERS, missing=NOT_OFFERED, remark="results are files in a folder"),
    DocumentedPath(
        "compare",
        "W&B",
        f"{_WANDB}/models/evaltables/compare-runs",
        (click("+"), click("the other run")),
        remark="if the program logs an Eval Table: aligned rows, differences of scores, no verdict",
    ),
    DocumentedPath(
        "compare",
        "OSMO",
        f"{_OSMO}/workflows/index.rst",
        missing=NOT_OFFERED,
        remark="the guide describes no scores of workflows",
    ),
    DocumentedPath(
        "compare", "Backend.AI", _SESSIONS, missing=NOT_OFFERED, remark="the manual describes no scores of sessions"
    ),
    DocumentedPath(
        "sequential",
        "W&B",
        f"{_WANDB}/models/sweeps/sweep-config-keys",
        missing=NOT_OFFERED,
        remark="`early_terminate` of a sweep stops poor runs of a search, without a verdict on two models",
    ),
    DocumentedPath(
        "sequential",
        "OSMO",
        f"{_OSMO}/workflows/specification/index.rst",
        missing=NOT_OFFERED,
        remark="a workflow ends with its tasks or at a timeout",
    ),
    DocumentedPath(
        "sequential",
        "Backend.AI",
        _SESSIONS,
        missing=NOT_OFFERED,
        remark="a batch session ends with its command or at a timeout",
    ),
    DocumentedPath(
        "find",
        "W&B",
        f"{_WANDB}/models/runs/filter-runs",
        (
            click("Runs"),
            click("the search"),
            write("idm"),
            click("Filter"),
            choose("Tags"),
            choose("is"),
            choose("the tag"),
        ),
        remark="the word is searched in names and ids of runs",
    ),
    DocumentedPath(
        "find",
        "OSMO",
        f"{_OSMO}/workflows/submission.rst",
        (command("osmo workflow list --name idm --label branch=main"),),
        remark="the word is searched in names of workflows",
    ),
    DocumentedPath(
        "find",
        "Backend.AI",
        _SESSIONS,
        missing=NOT_DOCUMENTED,
        remark="sessions are filtered by name, resource group and agent",
    ),
    DocumentedPath(
        "cancel",
        "W&B",
        f"{_WANDB}/models/runs/stop-runs",
        (click("a run", 3), click("the stop button", 3)),
        remark="one run after the other; the runs of a sweep are stopped by one command",
    ),
    DocumentedPath(
        "cancel",
        "OSMO",
        _OSMO_CLI,
        (command("osmo workflow cancel hello-osmo-1 hello-osmo-2 hello-osmo-3"),),
    ),
    DocumentedPath(
        "cancel",
        "Backend.AI",
        _SESSIONS,
        (click("Sessions"), click("a session", 3), click("the power button", 3), click("Terminate", 3)),
        remark="the command `backend.ai rm` accepts several ids",
    ),
    DocumentedPath(
        "csv",
        "W&B",
        f"{_WANDB}/models/runs/customize-run-display",
        (click("Runs"), click("the download button")),
        remark="a row for each run; rows of a logged table are exported by a program",
    ),
    DocumentedPath(
        "csv",
        "OSMO",
        f"{_OSMO}/how_to/reinforcement_learning.rst",
        (command("osmo data download s3://my-bucket/robot-policy/ ~/"),),
        remark="the files of the task as they are",
    ),
    DocumentedPath(
        "csv",
        "Backend.AI",
        _FOLDERS,
        (click("Data"), click("the folder"), click("Download")),
        remark="a file of the session as it is",
    ),
    DocumentedPath(
        "repeat",
        "W&B",
        f"{_WANDB}/platform/launch/add-job-to-queue",
        _LAUNCH,
        remark="if Launch has an agent and a queue",
    ),
    DocumentedPath("repeat", "OSMO", _OSMO_CLI, (command("osmo workflow restart hello-osmo-1"),)),
    DocumentedPath(
        "repeat",
        "Backend.AI",
        _SESSIONS,
        _START_AGAIN,
        remark="among the last five sessions",
    ),
)
