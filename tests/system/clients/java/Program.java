// Drives a model file from submission to results with the Java client that openapi-generator writes (library native).
// Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import windtunnel.ApiClient;
import windtunnel.ApiException;
import windtunnel.api.ArtifactsApi;
import windtunnel.api.ResultsApi;
import windtunnel.api.SimulationsApi;
import windtunnel.api.SubmissionsApi;
import windtunnel.model.DryRun;
import windtunnel.model.Problem;
import windtunnel.model.Result;
import windtunnel.model.ScenarioSelection;
import windtunnel.model.Scenarios;
import windtunnel.model.Simulation;
import windtunnel.model.Submission;
import windtunnel.model.Summary;

public final class Program {
    public static void main(String[] arguments) throws ApiException, IOException {
        ApiClient client = new ApiClient();
        client.updateBaseUri(arguments[0]);
        ObjectMapper json = client.getObjectMapper();
        SubmissionsApi submissions = new SubmissionsApi(client);
        SimulationsApi simulations = new SimulationsApi(client);
        ResultsApi results = new ResultsApi(client);
        File model = new File(arguments[1]);

        DryRun check = submissions.checkForm(
            SubmissionsApi.APICheckFormRequest.newBuilder().dataset("noop").model(model).build());
        long started = System.nanoTime();
        Simulation created = submissions.submitForm(
            SubmissionsApi.APISubmitFormRequest.newBuilder().dataset("noop").model(model)
                .scenarios("{\"tasks\": [3, 5]}").repeat(2L).prefer("wait=120").build());
        File lines = results.getSimulationResults(
            ResultsApi.APIGetSimulationResultsRequest.newBuilder().id(created.getId()).build());
        List<String> statuses = new ArrayList<>();
        for (String line : Files.readAllLines(lines.toPath())) {
            statuses.add(json.readValue(line, Result.class).getStatus().getValue());
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        File table = results.getSimulationResults(
            ResultsApi.APIGetSimulationResultsRequest.newBuilder().id(created.getId()).format("csv").build());
        Summary summary = simulations.getSimulationSummary(created.getId());
        File events = results.watchSimulationEvents(
            ResultsApi.APIWatchSimulationEventsRequest.newBuilder().id(created.getId()).build());
        File archive = new ArtifactsApi(client).getSimulationArchive(
            ArtifactsApi.APIGetSimulationArchiveRequest.newBuilder().id(created.getId()).build());

        Submission submission = new Submission().dataset("noop").model(created.getModel().getName())
            .scenarios(new ScenarioSelection(new Scenarios().range(List.of(0L, 3L))));
        Simulation again = simulations.createSimulation(submission, null, "wait=120");
        DryRun checked = submissions.checkSubmission(submission);
        Problem problem = null;
        try {
            simulations.createSimulation(submission.dataset("nop"), null, null);
        } catch (ApiException error) {
            problem = json.readValue(error.getResponseBody(), Problem.class);
        }

        Map<String, Object> answers = new LinkedHashMap<>();
        answers.put("fits", List.of(check.getFits(), checked.getFits()));
        answers.put("id", created.getId());
        answers.put("seconds", seconds);
        answers.put("state", created.getState());
        answers.put("statuses", statuses);
        answers.put("csv_lines", Files.readAllLines(table.toPath()).size());
        answers.put("summary", summary.getTasks());
        answers.put("events", Files.readString(events.toPath()).split("event: state", -1).length - 1);
        answers.put("archive", new String(Files.readAllBytes(archive.toPath()), 0, 2));
        answers.put("again", List.of(again.getId(), again.getState(), again.getTasks().getDone()));
        answers.put("problem", List.of(problem.getStatus(), problem.getType()));
        System.out.println(json.writeValueAsString(answers));
    }
}
