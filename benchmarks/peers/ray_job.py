"""Ray's job API, warm: seconds from submitting an empty job to its end, as its own client observes it."""

import json
import sys
import time

import ray
from ray.job_submission import JobStatus, JobSubmissionClient

ENDED = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED}


def seconds(client: JobSubmissionClient) -> float:
    """Submit one empty job and wait for its end."""
    began = time.perf_counter()
    id = client.submit_job(entrypoint="true")
    while client.get_job_status(id) not in ENDED:
        time.sleep(0.01)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print the seconds of each job."""
    context = ray.init(num_cpus=2, include_dashboard=True, log_to_driver=False, logging_level="ERROR")
    client = JobSubmissionClient(f"http://{context.dashboard_url}")
    seconds(client)
    print(json.dumps({"seconds": [seconds(client) for _ in range(int(sys.argv[1]))], "version": ray.__version__}))


if __name__ == "__main__":
    main()
