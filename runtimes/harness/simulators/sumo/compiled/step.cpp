// C interface of the compiled step, which compiled_step.py calls through ctypes: streets, scenarios, steps, the loop of a
// scenario.
#include <memory>

#include "exchange.h"

using namespace car_street;


namespace {
string last_error;
int last_status = 0;

enum Status { GOES_ON = 0, ENDED = 1, SUMO_REFUSED = -1, SUMO_FAILED = -2, STEP_FAILED = -3 };

// Call, and translate exceptions: none may reach ctypes.
template <typename Call>
int guarded(Call call) {
    try {
        return call();
    } catch (const libsumo::TraCIException& error) {
        last_error = error.what();
        return last_status = SUMO_REFUSED;
    } catch (const StepError& error) {
        last_error = error.what();
        return last_status = STEP_FAILED;
    } catch (const std::exception& error) {
        last_error = error.what();
        return last_status = SUMO_FAILED;
    }
}
}  // namespace

extern "C" {
// SUMO terminates and initializes its XML library at each load, which takes longer than to parse a small network. The
// library counts its users: with this one, it stays initialized.
void hold_xml_parser() { xercesc_3_2::XMLPlatformUtils::Initialize("en_US", nullptr, nullptr, nullptr); }

int step_status() { return last_status; }
const char* step_error() { return last_error.c_str(); }

Street* street_new(const char* text) {
    std::istringstream in(text);
    auto street = std::make_unique<Street>();
    return read(in, *street) ? street.release() : nullptr;
}

int street_path(Street* street, int index, const char* text) {
    std::istringstream in(text);
    return read(in, street->paths.at(index));
}

// Begin a scenario whose vehicles SUMO has inserted. Text: the ego's route, then vehicles (id, minGap, route); edges by
// index. The first observation is written to `out`.
Episode* episode_new(Street* street, const char* text, double route_length, double time_limit, void (*load_path)(int),
                     float* out) {
    std::istringstream in(text);
    auto episode = std::make_unique<Episode>(*street, load_path);
    auto read_route = [&in](vector<int>& route) {
        size_t edges = 0;
        in >> edges;
        route.resize(edges);
        for (int& edge : route) in >> edge;
    };
    read_route(episode->route);
    size_t count = 0;
    in >> count;
    for (string id; count-- && in >> id;) {
        RoadUser& user = episode->detector.users[id];
        in >> user.min_gap;
        read_route(user.route);
    }
    const int status = guarded([&] {
        if (!in) throw StepError("the text of a scenario is malformed");
        State& state = episode->state;
        state.route_length = route_length;
        state.time_limit = time_limit;
        state.min_ttc = state.min_headway = state.min_pet = state.min_ttc_pedestrian = INF;
        state.lane = state.path = -1;
        state.speed = Vehicle::getSpeed(EGO);
        state.odometer = Vehicle::getDistance(EGO);
        episode->read_ego();
        episode->observe(out);
        return GOES_ON;
    });
    return status == GOES_ON ? episode.release() : nullptr;
}

void episode_delete(Episode* episode) { delete episode; }
State* episode_state(Episode* episode) { return &episode->state; }

// Apply an action for one step; write the observation to `out` unless the scenario has ended otherwise than by time.
int episode_step(Episode* episode, double accel, double lane, float* out) {
    return guarded([&] { return episode->step(accel, lane, out) ? ENDED : GOES_ON; });
}

// Drive with the actions of a model server until the scenario is over or Python has to decide; return a Pause.
int episode_drive(Episode* episode, Exchange* exchange, int (*event)(), float* out) {
    return guarded([&] { return drive(*exchange, *episode, event, out); });
}

// Metres from the ego's front to the actor's rear along the route; infinity if it is not ahead: Ego.gap.
double actor_gap(const char* edge_of_route, double edge_length) {
    double gap = INF;
    const int status = guarded([&] {
        const string road = Vehicle::getRoadID(ACTOR);
        const bool inside = road[0] == ':';
        const string edge = inside ? edge_of_route : road;
        const double position = inside ? edge_length : Vehicle::getLanePosition(ACTOR);
        const double distance = Vehicle::getDrivingDistance(EGO, edge, position, 0);
        if (distance >= -1e6) gap = distance - Vehicle::getLength(ACTOR);
        return GOES_ON;
    });
    return status == GOES_ON ? gap : std::numeric_limits<double>::quiet_NaN();
}
}
