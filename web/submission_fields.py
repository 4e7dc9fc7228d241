# Generated from core/domain/submissions/submission.py by scripts/sync_client.py; a field is a line.
# ruff: noqa: E501
# fmt: off
"""Fields of a submission, as its document has them, and the words with which people and agents are asked for each."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple


class DescribedField(NamedTuple):
    """A field: the option of the command line and the label in the form are empty where people are not asked for it."""

    name: str
    type: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    option: str = ""
    metavar: str | None = None
    help: str = ""
    label: str = ""
    placeholder: str = ""
    agents: bool = False


FIELDS = (
    DescribedField(name='runtime', type=str, description="Runtime of the model; chosen by the model's format if left out or null.", option='--runtime', help="Runtime; by the model's format if left out.", agents=True),
    DescribedField(name='params', type=Mapping[str, Any], description='Parameters of the dataset, by name.', option='--param', metavar='NAME=VALUE', help='Parameter of the dataset.', agents=True),
    DescribedField(name='sweep', type=Mapping[str, Sequence[Any]], description='Parameters with several values each: every combination is simulated.', option='--sweep', metavar='NAME=A,B,C', help='Every combination of these values.', agents=True),
    DescribedField(name='repeat', type=int, description='Number of times that each scenario is simulated; 1 if left out.', low=1, high=10000000, option='--repeat', metavar='N', help='Each scenario N times, with different seeds.', agents=True, label='Repetitions of each', placeholder='1'),
    DescribedField(name='workers', type=int, description='Number of workers, at most those of the executor; a worker is one evaluator with its model server. As many as there are, if left out or null.', low=1, high=4096, option='--workers', metavar='N', help='Number of workers; by the platform if left out.', agents=True, label='Workers', placeholder='as many as there are'),
    DescribedField(name='seed', type=int, description="Seed from which each task's seed is derived; 0 if left out.", low=0, high=9007199254740991, option='--seed', help="Seed from which every task's seed is derived.", agents=True, label='Seed', placeholder='0'),
    DescribedField(name='record', type=str, description='Tasks whose traces are stored.', choices=('none', 'failures', 'all'), option='--record', help='Tasks whose traces are stored.', agents=True, label='Traces for replays', placeholder='the default'),
    DescribedField(name='labels', type=Mapping[str, str], description='Your labels, for filtering the list.', option='--label', metavar='NAME=VALUE', help='Label, to find the simulation by.', agents=True, label='Labels', placeholder='branch=main team=planning'),
    DescribedField(name='timeout', type=float, description='Time limit in seconds, from the first lease: the simulation fails after it. No limit if left out or null.', low=0.1, high=31536000.0, option='--timeout', metavar='SECONDS', help='Time limit, from the first task on.', agents=True, label='Time limit, in seconds', placeholder='none'),
    DescribedField(name='max_failures', type=int, description='Number of tasks that may fail: the simulation fails when there are more. No limit if left out or null.', low=0, high=9007199254740991, option='--max-failures', metavar='N', help='Stop when more than N tasks have failed.', agents=True, label='Failures permitted', placeholder='any'),
    DescribedField(name='placement', type=Mapping[str, Any], description='Executor and resources.'),
    DescribedField(name='gang', type=Mapping[str, Any], description='Run a program as a gang: replicas that start together and run it together, once per task. Null: as if left out.'),
    DescribedField(name='connection', type=str, description='Connection of the operator by which the `model_reference` is read; it may be left out, or null, where only one is possible.', option='--connection', metavar='NAME', help='Connection that reads a referenced model, where several could.'),
    DescribedField(name='format', type=str, description='Format of a model that is sent with the submission, as a file or as an `upload`, or named by a `model_reference`; detected from the bytes if left out or null.', option='--format', help='Format of a model file; detected from its bytes if left out.'),
    DescribedField(name='log_to_run', type=bool, description='At its end, log its metrics, state and address to the MLflow run of its model; where the operator allows that.', option='--log-to-run', help='Log the results to the MLflow run of the model.'),
    DescribedField(name='worlds', type=int | Literal["auto"], description='Most scenarios that a worker plays side by side, or `auto`, as if left out: the platform decides. The results do not depend on it. It has no effect where a model server serves one scenario at a time: with `batch` above 1, and with simulators, formats and deadlines that do not permit more.', low=1, high=64, option='--worlds', metavar='N', help='Most scenarios that a worker plays side by side, or auto.', label='Scenarios side by side', placeholder='auto'),
    DescribedField(name='trusted', type=bool, description="Run the model in the evaluator's process, where the operator allows that: faster, for models of your own. The results are the same, but nothing keeps the model from its score any more. No leaderboard and no gate takes them unless it is asked to.", option='--trusted', help="Run your own model in the evaluator's process: faster; it can change its score."),
    DescribedField(name='outputs', type=Mapping[str, Mapping[str, Any]], description='Files that the program leaves in `$WINDTUNNEL_OUTPUT` and that become models or datasets at its end, by a name of yours. Of gangs only.'),
)
