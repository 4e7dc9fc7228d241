// One step of car_street: the compiled form of python_step.py, conflicts.py, post_encroachment.py, observation.py,
// drive_metrics.py and time_to_collision.py, which stay the reference.
//
// Each function has the name and the order of operations of the Python function that it mirrors, so that results are equal
// to the bit; tests/simulators compares them.
#pragma once
#include <cctype>

#include "conflicts.h"

namespace car_street {
const double DT = 0.1;
// Bounds and constants: those of the Python modules, by the same names.
const double ACCEL_LOW = -9.0, ACCEL_HIGH = 3.0, SPEED_TOLERANCE = 1e-3;
const int CHANGE_STEPS = 30;
const double RANGE = 100.0, MAX_SPEED = 50.0, ROUTE_LANE_LEFT = 300.0, ROUTE_LEFT = 2000.0, STOP_LINE = 100.0;
const double COMFORT_DECEL = -4.05, COMFORT_ACCEL = 2.40, COMFORT_JERK = 4.13;
const double HALF_WIDTH = 0.9, HALF_PEDESTRIAN = 0.25, STANDING = 0.1;
const double RSS_RHO = 0.5, RSS_ACCEL = 3.0, RSS_BRAKE = 4.0, RSS_BRAKE_LEAD = 8.0;

double bounded(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

// Shared with compiled_step.py, which declares the same members in the same order.
struct State {
    double position, speed, accel, limit, stop_line, route_length, odometer, time_limit;
    // Accumulated measurements: class Drive.
    double driven, min_ttc, max_drac, min_headway, min_pet, min_ttc_pedestrian;
    double speeding, max_speeding, jerk_squares, max_decel, co2, last_accel;
    int steps, ttc_exposed, unsafe, red_lights, comfortable, lane_changes, clipped;
    int moves;     // steps of the scenario, also those that were not measured
    int lane, path, light, entered_on, changing;
    int outcome;   // 0: none yet; else an index into OUTCOMES of compiled_step.py
    int actor_arrived;
    int pedestrians;  // their times to collision are measured
};
enum Outcome { RUNNING = 0, ARRIVED = 1, COLLISION = 2, STRANDED = 3, TIMEOUT = 4 };

struct Episode {
    State state;
    Street& street;
    ConflictDetector detector;
    vector<int> route;
    std::unordered_map<int, std::pair<double, double>> route_lanes;
    bool lead_present = false;
    double lead_gap = RANGE, lead_relative = 0.0;

    Episode(Street& street, void (*load_path)(int)) : state(), street(street), detector(street, load_path) {}

    double min_gap(const string& name) const {
        auto user = detector.users.find(name);
        return user == detector.users.end() ? 0.0 : user->second.min_gap;
    }

    // -- python_step.py ------------------------------------------------------------------------------------------
    void read_ego() {
        const string id = Vehicle::getLaneID(EGO);
        if (state.lane < 0 || street.lanes[state.lane].id != id) {
            const auto lane = street.lane_by_id.find(id);
            if (lane == street.lane_by_id.end()) throw StepError("the ego is on the lane " + id + ", which is not for cars");
            state.lane = lane->second;
        }
        state.position = Vehicle::getLanePosition(EGO);
        state.limit = Vehicle::getAllowedSpeed(EGO);
        state.light = NO_LIGHT;
        if (street.has_lights) {
            const auto lights = Vehicle::getNextTLS(EGO);
            if (!lights.empty()) {
                state.stop_line = lights[0].dist;
                state.light = lights[0].state;
            }
        }
    }

    int light_ahead() const { return state.path >= 0 && street.paths[state.path].light ? state.light : NO_LIGHT; }

    double junction_path() {
        const Lane& lane = street.lanes[state.lane];
        if (lane.internal) {
            if (lane.path < 0) throw StepError("no path of cars leads over the lane " + lane.id);
            state.path = lane.path;
            return lane.before + state.position;
        }
        const int index = Vehicle::getRouteIndex(EGO) + 1;
        if (index >= static_cast<int>(route.size())) {
            state.path = -1;
            return 0.0;
        }
        state.path = street.path(state.lane, route[index]);
        return state.position - lane.length;
    }

    void observe(float* out) {
        const double driven = junction_path();
        const int light = driven >= 0 ? state.entered_on : light_ahead();
        compose(out, detector.detect(state.path, driven, state.driven, light, state.moves * DT));
        state.min_pet = detector.min_pet;
    }

    bool step(double accel_action, double lane_action, float* out) {
        const double accel = std::min(ACCEL_HIGH, std::max(ACCEL_LOW, accel_action));
        if (accel != accel_action || !(-1.0 <= lane_action && lane_action <= 1.0)) state.clipped += 1;
        const double speed = std::max(0.0, state.speed + accel * DT);
        Vehicle::setSpeed(EGO, speed);
        change_lane(lane_action);
        libsumo::Simulation::step(0.0);
        state.moves += 1;
        const double before = state.speed;
        bool arrived = false;
        for (const string& name : libsumo::Simulation::getArrivedIDList()) {
            arrived |= name == EGO;
            state.actor_arrived |= name == ACTOR;
        }
        if (arrived) {
            state.outcome = ARRIVED;
            record(speed, before, 0.0);
            state.driven = state.route_length;
            return true;
        }
        for (const auto& collision : libsumo::Simulation::getCollisions()) {
            if (collision.collider == EGO || collision.victim == EGO) {
                state.outcome = COLLISION;
                move(speed, before);
                return true;
            }
        }
        advance(speed, before);
        if (state.outcome != RUNNING) return true;
        observe(out);
        if (lead_present) follow(state.speed, lead_gap, lead_relative);
        if (state.pedestrians) state.min_ttc_pedestrian = std::min(state.min_ttc_pedestrian, least_time_to_pedestrian());
        if (state.moves * DT >= state.time_limit - 1e-9) state.outcome = TIMEOUT;
        return state.outcome != RUNNING;
    }

    void change_lane(double lane_action) {
        if (state.changing) {
            state.changing -= 1;
            return;
        }
        const int direction = lane_action >= 0.5 ? 1 : lane_action <= -0.5 ? -1 : 0;
        const Lane& lane = street.lanes[state.lane];
        if (direction && !lane.internal && 0 <= lane.rank + direction && lane.rank + direction < lane.count) {
            Vehicle::changeLaneRelative(EGO, direction, DT);
            state.changing = CHANGE_STEPS;
        }
    }

    void advance(double commanded, double before) {
        const Lane& previous = street.lanes[state.lane];
        const int light = light_ahead();
        read_ego();
        const Lane& lane = street.lanes[state.lane];
        if (lane.edge == previous.edge && &lane != &previous) state.lane_changes += 1;
        if (lane.internal && !previous.internal) {
            state.entered_on = light;
            if (red(light)) state.red_lights += 1;
        } else if (!lane.internal) {
            state.entered_on = NO_LIGHT;
        }
        if (!move(commanded, before)) state.outcome = STRANDED;
    }

    bool move(double commanded, double before) {
        state.speed = Vehicle::getSpeed(EGO);
        state.driven = Vehicle::getDistance(EGO) - state.odometer;
        if (std::abs(state.speed - commanded) > SPEED_TOLERANCE) {
            state.steps += 1;  // Drive.halt
            state.comfortable += 1;
            return false;
        }
        record(commanded, before, Vehicle::getCO2Emission(EGO));
        return true;
    }

    // -- drive_metrics.py ----------------------------------------------------------------------------------------
    void record(double speed, double before, double co2) {
        state.accel = (speed - before) / DT;
        const double accel = state.accel, jerk = (accel - state.last_accel) / DT;
        state.last_accel = accel;
        state.steps += 1;
        state.jerk_squares += jerk * jerk;
        if (-accel > state.max_decel) state.max_decel = -accel;
        if (COMFORT_DECEL <= accel && accel <= COMFORT_ACCEL && -COMFORT_JERK <= jerk && jerk <= COMFORT_JERK)
            state.comfortable += 1;
        const double over = speed - state.limit;
        if (over > 0.0) {
            state.speeding += over * DT;
            if (over > state.max_speeding) state.max_speeding = over;
        }
        state.co2 += co2 * DT;
    }

    static double rss_distance(double speed, double lead_speed) {
        const double reached = speed + RSS_RHO * RSS_ACCEL;
        const double gap = speed * RSS_RHO + RSS_ACCEL * (RSS_RHO * RSS_RHO) / 2;
        return std::max(0.0, gap + reached * reached / (2 * RSS_BRAKE) - lead_speed * lead_speed / (2 * RSS_BRAKE_LEAD));
    }

    void follow(double speed, double gap, double relative) {
        const double closing = -relative;
        if (closing > 0.1) {
            const double ttc = gap / closing;
            if (ttc < state.min_ttc) state.min_ttc = ttc;
            if (ttc < 1.5) state.ttc_exposed += 1;
            const double drac = closing * closing / (2 * std::max(0.1, gap));
            if (drac > state.max_drac) state.max_drac = drac;
        }
        if (speed > 1.0 && gap / speed < state.min_headway) state.min_headway = gap / speed;
        if (gap < rss_distance(speed, speed + relative)) state.unsafe += 1;
    }

    // -- time_to_collision.py ------------------------------------------------------------------------------------
    static std::pair<double, double> within(double position, double speed, double low, double high) {
        if (speed == 0.0)
            return low <= position && position <= high ? std::make_pair(-INF, INF) : std::make_pair(INF, -INF);
        const double one = (low - position) / speed, other = (high - position) / speed;
        return one < other ? std::make_pair(one, other) : std::make_pair(other, one);
    }

    static double time_to_contact(double ahead, double left, double along, double across) {
        const auto inside = within(ahead, along, -EGO_LENGTH - HALF_PEDESTRIAN, HALF_PEDESTRIAN);
        const auto beside = within(left, across, -HALF_WIDTH - HALF_PEDESTRIAN, HALF_WIDTH + HALF_PEDESTRIAN);
        const double begin = std::max(inside.first, beside.first), end = std::min(inside.second, beside.second);
        return begin <= end && end >= 0.0 ? std::max(0.0, begin) : INF;
    }

    bool on_carriageway(const string& lane) const {
        if (street.lane_by_id.count(lane)) return true;
        const size_t last = lane.rfind('_');
        if (lane.empty() || lane[0] != ':' || last == string::npos || last == 0) return false;
        const size_t kind = lane.rfind('_', last - 1);
        return kind != string::npos && kind + 1 < last && lane[kind + 1] == 'c';
    }

    double least_time_to_pedestrian() const {
        double least = INF;
        if (state.speed <= STANDING) return least;
        const auto position = Vehicle::getPosition(EGO, false);
        const double angle = Vehicle::getAngle(EGO) * RADIANS, east = std::sin(angle), north = std::cos(angle);
        for (const string& name : libsumo::Person::getIDList()) {
            if (!on_carriageway(libsumo::Person::getLaneID(name))) continue;
            const auto person = libsumo::Person::getPosition(name, false);
            const double walking = libsumo::Person::getSpeed(name), direction = libsumo::Person::getAngle(name) * RADIANS;
            const double dx = person.x - position.x, dy = person.y - position.y;
            const double vx = walking * std::sin(direction), vy = walking * std::cos(direction);
            least = std::min(least, time_to_contact(dx * east + dy * north, dy * east - dx * north,
                                                    vx * east + vy * north - state.speed, vy * east - vx * north));
        }
        return least;
    }

    // -- observation.py ------------------------------------------------------------------------------------------
    void compose(float* out, const Conflict& conflict) {
        const Lane& lane = street.lanes[state.lane];
        const double speed = state.speed;
        double shift = 0.0, left = ROUTE_LANE_LEFT;
        if (!lane.internal) {
            auto known = route_lanes.find(state.lane);
            if (known == route_lanes.end()) {
                for (const auto& best : Vehicle::getBestLanes(EGO)) {
                    auto index = street.lane_by_id.find(best.laneID);
                    if (index != street.lane_by_id.end())
                        route_lanes[index->second] = {bounded(best.bestLaneOffset, -2.0, 2.0), best.length};
                }
                known = route_lanes.find(state.lane);
                if (known == route_lanes.end()) throw StepError("the ego's lane " + lane.id + " is not on its route");
            }
            shift = known->second.first;
            left = bounded(known->second.second - state.position, 0.0, ROUTE_LANE_LEFT);
        }
        const bool left_open = !lane.internal && lane.rank + 1 < lane.count, right_open = !lane.internal && lane.rank > 0;
        float* entry = out;
        auto add = [&entry](double value) { *entry++ = static_cast<float>(value); };
        add(bounded(speed, 0.0, MAX_SPEED));
        add(bounded(state.accel, -9.0, 3.0));
        add(bounded(state.limit, 0.0, MAX_SPEED));
        add(bounded(Vehicle::getLateralLanePosition(EGO), -2.0, 2.0));
        add(lane.rank);
        add(lane.count);
        add(shift);
        add(left);
        add(bounded(state.route_length - state.driven, 0.0, ROUTE_LEFT));
        const auto leader = Vehicle::getLeader(EGO, RANGE);
        lead_present = !leader.first.empty() && leader.second <= RANGE;
        if (lead_present) {
            lead_relative = Vehicle::getSpeed(leader.first) - speed;
            lead_gap = std::max(0.0, leader.second);
            add(1.0);
            add(bounded(leader.second, 0.0, RANGE));
            add(bounded(lead_relative, -MAX_SPEED, MAX_SPEED));
            add(bounded(Vehicle::getAcceleration(leader.first), -9.0, 5.0));
        } else {
            for (double value : {0.0, RANGE, 0.0, 0.0}) add(value);
        }
        const auto follower = Vehicle::getFollower(EGO, RANGE);
        if (follower.first.empty()) {
            add(RANGE);
            add(0.0);
        } else {
            add(bounded(follower.second + min_gap(follower.first), 0.0, RANGE));
            add(bounded(Vehicle::getSpeed(follower.first) - speed, -MAX_SPEED, MAX_SPEED));
        }
        for (int side = 0; side < 2; ++side) {
            if (!(side == 0 ? left_open : right_open)) {
                for (double value : {RANGE, 0.0, RANGE, 0.0}) add(value);
                continue;
            }
            const auto ahead = Vehicle::getNeighbors(EGO, 2 + side), behind = Vehicle::getNeighbors(EGO, side);
            add(ahead.empty() ? RANGE : bounded(ahead[0].second, 0.0, RANGE));
            add(ahead.empty() ? 0.0 : bounded(Vehicle::getSpeed(ahead[0].first) - speed, -MAX_SPEED, MAX_SPEED));
            add(behind.empty() ? RANGE : bounded(behind[0].second + min_gap(behind[0].first), 0.0, RANGE));
            add(behind.empty() ? 0.0 : bounded(Vehicle::getSpeed(behind[0].first) - speed, -MAX_SPEED, MAX_SPEED));
        }
        add(left_open);
        add(right_open);
        if (state.light != NO_LIGHT && state.stop_line <= STOP_LINE) {
            const int light = std::tolower(state.light);
            add(std::max(0.0, state.stop_line));
            add(light == 'r' || light == 'u');
            add(light == 'y');
        } else {
            for (double value : {STOP_LINE, 0.0, 0.0}) add(value);
        }
        for (double value : {conflict.present, conflict.ego_distance, conflict.other_distance, conflict.speed}) add(value);
    }
};
}  // namespace car_street
