// Drives a model file from submission to results with openapi-fetch, by the types that openapi-typescript writes.
// Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
import { readFile } from "node:fs/promises";
import createClient from "openapi-fetch";
import type { components, paths } from "./windtunnel.js";

/** Return the value of an answer; what the platform refused is an error. */
function known<T>(answer: { data?: T; error?: unknown }): T {
    if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
    return answer.data;
}

/** Encode a body as a form; without this openapi-fetch sends JSON. */
function form(fields: object): FormData {
    const data = new FormData();
    for (const [name, value] of Object.entries(fields)) data.append(name, value instanceof Blob ? value : String(value));
    return data;
}

async function main(): Promise<void> {
    const [url, path] = process.argv.slice(2);
    const client = createClient<paths>({ baseUrl: url });
    // openapi-typescript has the type `string` for bytes
    const model = new File([new Uint8Array(await readFile(path!))], "half.py") as unknown as string;

    const check = known(await client.POST("/v1/forms/checks", { body: { dataset: "noop", model }, bodySerializer: form }));
    const started = performance.now();
    const created = known(await client.POST("/v1/forms/simulations", {
        params: { header: { Prefer: "wait=120" } },
        body: { dataset: "noop", model, scenarios: '{"tasks": [3, 5]}', repeat: 2 },
        bodySerializer: form,
    }));
    const simulation = { id: created.id };
    const lines = known(await client.GET("/v1/simulations/{id}/results", {
        params: { path: simulation }, parseAs: "text",
    }));
    const rows = lines.trim().split("\n").map((line) => JSON.parse(line) as components["schemas"]["Result"]);
    const seconds = (performance.now() - started) / 1000;
    const table = known(await client.GET("/v1/simulations/{id}/results", {
        params: { path: simulation, query: { format: "csv" } }, parseAs: "text",
    }));
    const summary = known(await client.GET("/v1/simulations/{id}/summary", { params: { path: simulation } }));
    const events = known(await client.GET("/v1/simulations/{id}/events", {
        params: { path: simulation }, parseAs: "text",
    }));
    const archive = known(await client.GET("/v1/simulations/{id}/archive", {
        params: { path: simulation }, parseAs: "blob",
    }));

    const body: components["schemas"]["Submission"] = {
        dataset: "noop", model: created.model.name, scenarios: { range: [0, 3] },
    };
    const again = known(await client.POST("/v1/simulations", { params: { header: { Prefer: "wait=120" } }, body }));
    const checked = known(await client.POST("/v1/checks", { body }));
    const { error: problem } = await client.POST("/v1/simulations", { body: { ...body, dataset: "nop" } });
    console.log(JSON.stringify({
        fits: [check.fits, checked.fits],
        id: created.id,
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
