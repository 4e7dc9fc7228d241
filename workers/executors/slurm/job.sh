#!/bin/sh
# One task of the array is one runner. Whatever a site needs beforehand goes into the option "prolog".
task=$${SLURM_ARRAY_TASK_ID:-0}
# A submission whose answer was lost is made again: the first to come here does the work, and the other has none. The
# same job comes twice where a controller died before it noted that it had started it: it ended that, and this goes on.
mkdir "task.$$task" 2>/dev/null && echo "$$SLURM_ARRAY_JOB_ID" > "task.$$task/job"
[ "$$(cat "task.$$task/job")" = "$$SLURM_ARRAY_JOB_ID" ] || exit 0
[ ! -e "task.$$task/exit" ] || exit "$$(cat "task.$$task/exit")"
sed "s/%TASK%/$$task/g" launch.json > "task.$$task/launch.json" || exit 76
$prolog
PYTHONPATH=$source $python -m workers.standalone_runner --launch "$$PWD/task.$$task/launch.json"
code=$$?
echo "$$code" > "task.$$task/.exit" && mv "task.$$task/.exit" "task.$$task/exit"
exit "$$code"
