// Drives a model file from submission to results with the TypeScript client that openapi-generator writes (typescript-fetch).
// An operation that may answer 204 without a body returns null then; a stream that is read from its start has one.
// Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
import { readFile } from "node:fs/promises";
import * as windtunnel from "./windtunnel";

async function main(): Promise<void> {
    const [url, path] = process.argv.slice(2);
    const configuration = new windtunnel.Configuration({ basePath: url });
    const submissions = new windtunnel.SubmissionsApi(configuration);
    const simulations = new windtunnel.SimulationsApi(configuration);
    const results = new windtunnel.ResultsApi(configuration);
    const artifacts = new windtunnel.ArtifactsApi(configuration);
    const model = new File([new Uint8Array(await readFile(path))], "half.py");

    const check = await submissions.checkForm({ dataset: "noop", model });
    const started = performance.now();
    const created = await submissions.submitForm({
        dataset: "noop", model, scenarios: '{"tasks": [3, 5]}', repeat: 2, prefer: "wait=120",
    });
    const id = created.id;
    const lines = (await (await results.getSimulationResults({ id }))!.text()).trim().split("\n");
    const rows = lines.map((line) => windtunnel.ResultFromJSON(JSON.parse(line)));
    const seconds = (performance.now() - started) / 1000;
    const table = await (await results.getSimulationResults({ id, format: "csv" }))!.text();
    const summary = await simulations.getSimulationSummary({ id });
    const events = await (await results.watchSimulationEvents({ id }))!.text();
    const archive = await artifacts.getSimulationArchive({ id });

    const submission = { dataset: "noop", model: created.model.name, scenarios: { range: [0, 3] } };
    const again = await simulations.createSimulation({ submission, prefer: "wait=120" });
    const checked = await submissions.checkSubmission({ submission });
    let problem: windtunnel.Problem | null = null;
    try {
        await simulations.createSimulation({ submission: { dataset: "nop", model: created.model.name } });
    } catch (error) {
        if (!(error instanceof windtunnel.ResponseError)) throw error;
        problem = windtunnel.ProblemFromJSON(await error.response.json());
    }
    console.log(JSON.stringify({
        fits: [check.fits, checked.fits],
        id,
        seconds,
        state: created.state,
        statuses: rows.map((row) => row.status),
        csv_lines: table.trim().split("\n").length,
        summary: summary.tasks,
        events: events.split("event: state").length - 1,
        archive: await archive.slice(0, 2).text(),
        again: [again.id, again.state, again.tasks.done],
        problem: [problem?.status, problem?.type],
    }));
}

void main();
