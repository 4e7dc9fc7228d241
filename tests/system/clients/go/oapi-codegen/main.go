// Drives a model file from submission to results with the Go client that oapi-codegen writes.
// Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"os"
	"strings"
	"time"

	"windtunnel/clients/oapi-codegen/windtunnel"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// form returns the content type and the body of a form: oapi-codegen's client leaves the encoding of forms to its user.
func form(path string, fields map[string]string) (string, *bytes.Buffer) {
	body := &bytes.Buffer{}
	writer := multipart.NewWriter(body)
	for name, value := range fields {
		must(0, writer.WriteField(name, value))
	}
	must(must(writer.CreateFormFile("model", path)).Write(must(os.ReadFile(path))))
	must(0, writer.Close())
	return writer.FormDataContentType(), body
}

func main() {
	ctx := context.Background()
	client := must(windtunnel.NewClientWithResponses(os.Args[1]))
	wait := "wait=120"

	contentType, body := form(os.Args[2], map[string]string{"dataset": "noop"})
	check := must(client.CheckFormWithBodyWithResponse(ctx, contentType, body)).JSON200
	contentType, body = form(os.Args[2], map[string]string{"dataset": "noop", "scenarios": `{"tasks": [3, 5]}`, "repeat": "2"})
	parameters := &windtunnel.SubmitFormParams{Prefer: &wait}
	started := time.Now()
	created := must(client.SubmitFormWithBodyWithResponse(ctx, parameters, contentType, body)).JSON201
	statuses := []string{}
	lines := must(client.GetSimulationResultsWithResponse(ctx, created.Id, nil)).Body
	for _, line := range bytes.Split(bytes.TrimSpace(lines), []byte("\n")) {
		var row windtunnel.Result
		must(0, json.Unmarshal(line, &row))
		statuses = append(statuses, string(row.Status))
	}
	seconds := time.Since(started).Seconds()
	format := windtunnel.GetSimulationResultsParamsFormat("csv")
	csv := must(client.GetSimulationResultsWithResponse(ctx, created.Id, &windtunnel.GetSimulationResultsParams{Format: &format})).Body
	summary := must(client.GetSimulationSummaryWithResponse(ctx, created.Id)).JSON200
	events := must(client.WatchSimulationEventsWithResponse(ctx, created.Id, nil)).Body
	archive := must(client.GetSimulationArchiveWithResponse(ctx, created.Id, nil)).Body

	var scenarios windtunnel.ScenarioSelection
	must(0, scenarios.FromScenarios(windtunnel.Scenarios{Range: &[]int64{0, 3}}))
	submission := windtunnel.Submission{Dataset: "noop", Model: &created.Model.Name, Scenarios: &scenarios}
	again := must(client.CreateSimulationWithResponse(ctx, &windtunnel.CreateSimulationParams{Prefer: &wait}, submission)).JSON201
	checked := must(client.CheckSubmissionWithResponse(ctx, submission)).JSON200
	submission.Dataset = "nop"
	problem := must(client.CreateSimulationWithResponse(ctx, nil, submission)).ApplicationproblemJSON422

	answers := map[string]any{
		"fits":      []bool{check.Fits, checked.Fits},
		"id":        created.Id,
		"seconds":   seconds,
		"state":     created.State,
		"statuses":  statuses,
		"csv_lines": strings.Count(string(csv), "\n"),
		"summary":   summary.Tasks,
		"events":    strings.Count(string(events), "event: state"),
		"archive":   string(archive[:2]),
		"again":     []any{again.Id, again.State, again.Tasks.Done},
		"problem":   []any{problem.Status, problem.Type},
	}
	fmt.Println(string(must(json.Marshal(answers))))
}
