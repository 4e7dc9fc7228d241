// Conflicts at junctions and pedestrian crossings: the compiled form of conflicts.py and post_encroachment.py.
#pragma once
#include <cmath>
#include <stdexcept>

#include "libsumo_api.h"
#include "street.h"

namespace car_street {
using libsumo::Vehicle;

const string EGO = "ego", ACTOR = "actor";
const double CONFLICT_RANGE = 60.0, EGO_LENGTH = 4.5, EXPECTED_DECELERATION = 4.0, MAX_PET = 5.0;
const double RADIANS = 3.14159265358979323846 / 180.0;
const int NO_LIGHT = 0;  // a light is its character, or this

struct StepError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

bool red(int light) { return light == 'r' || light == 'R' || light == 'u' || light == 'U'; }

struct RoadUser {
    double min_gap;
    vector<int> route;
};
// Post-encroachment time in one conflict area: class PostEncroachment.
struct Encroachment {
    double last_occupied = -INF, ego_left = INF;
    bool ego_entered = false;

    double update(const Area& area, double driven, bool occupied, double now) {
        double gap = INF;
        if (!ego_entered && driven >= area.entry) {
            ego_entered = true;
            gap = now - last_occupied;
        }
        if (ego_entered && ego_left == INF && driven - EGO_LENGTH > area.exit) ego_left = now;
        if (occupied) {
            if (ego_left < now) {
                gap = now - ego_left;
                ego_left = -INF;
            }
            last_occupied = now;
        }
        return 0.0 <= gap && gap <= MAX_PET ? gap : INF;
    }
    bool expired(double now) const { return ego_left != INF && now - ego_left > MAX_PET; }
};
struct Traversal {
    int path;
    double origin;
    vector<Encroachment> encroachments;
};
struct Occupant {
    int area;
    double front, rear, speed;
};
struct Conflict {
    double present = 0.0, ego_distance = CONFLICT_RANGE, other_distance = CONFLICT_RANGE, speed = 0.0;
};
class ConflictDetector {
  public:
    double min_pet = INF;
    std::unordered_map<string, RoadUser> users;

    ConflictDetector(Street& street, void (*load_path)(int)) : street(street), load_path(load_path) {}

    // Return the next conflict; `driven` is metres along the path, negative before it.
    Conflict detect(int path_index, double driven, double odometer, int light, double now) {
        Conflict best;
        if (path_index >= 0 && driven >= -CONFLICT_RANGE) {
            if (!traversing || traversals.back().path != path_index) {
                const Path& path = street.paths[path_index];
                if (!path.known) load_path(path_index);
                if (!path.known) throw StepError("the conflict areas of a path are missing");
                traversals.push_back({path_index, odometer - driven, vector<Encroachment>(path.areas.size())});
                traversing = true;
            }
            traversals.back().origin = odometer - driven;
            best = next_conflict(traversals.back(), driven, light, now);
        }
        const size_t finished = traversals.size() - (traversing ? 1 : 0);
        for (size_t i = 0; i < finished; ++i) {
            read_occupants(street.paths[traversals[i].path]);
            update_pet(traversals[i], odometer - traversals[i].origin, now);
        }
        if (finished) {
            auto expired = [now](const Traversal& traversal) {
                return std::all_of(traversal.encroachments.begin(), traversal.encroachments.end(),
                                   [now](const Encroachment& each) { return each.expired(now); });
            };
            const auto end = traversals.begin() + finished;
            traversals.erase(std::remove_if(traversals.begin(), end, expired), end);
        }
        return best;
    }

  private:
    Street& street;
    void (*load_path)(int);  // asks compiled_step.py for the areas of a path
    vector<Traversal> traversals;  // finished ones, then the current one
    bool traversing = false;
    vector<Occupant> occupants;

    Conflict next_conflict(Traversal& traversal, double driven, int light, double now) {
        const Path& path = street.paths[traversal.path];
        Conflict best;
        double least_arrival = INF;
        occupants.clear();
        if (driven > -30.0) read_occupants(path);
        update_pet(traversal, driven, now);
        auto consider = [&](const Area& area, double distance, double speed) {
            const double arrival = distance / (speed + 1.0);
            if (arrival < least_arrival) {
                least_arrival = arrival;
                best = {1.0, std::max(0.0, std::min(CONFLICT_RANGE, area.entry - driven)),
                        std::max(0.0, std::min(CONFLICT_RANGE, distance)), speed};
            }
        };
        if (!red(light)) {
            for (const Occupant& other : occupants) {
                const Area& area = path.areas[other.area];
                if (driven < area.exit && obstructs(area, other.front, other.rear, other.speed, light))
                    consider(area, area.other_entry - other.front, other.speed);
            }
            if (light != 'G') vehicles_approaching(path, driven, consider);
        }
        for (const CrosswalkArea& area : path.crosswalk_areas)
            if (driven < area.exit) nearest_pedestrian(area, area.entry - driven, best);
        return best;
    }

    void read_occupants(const Path& path) {
        occupants.clear();
        for (const InnerLane& lane : path.inner_lanes) {
            for (const string& name : libsumo::Lane::getLastStepVehicleIDs(lane.id)) {
                if (name == EGO) continue;
                const int onto = next_edge(name);
                double position = 0.0, length = 0.0, speed = 0.0;
                bool read = false;
                for (const auto& [area, before] : lane.areas) {
                    if (path.areas[area].onto != onto) continue;
                    if (!read) {
                        position = Vehicle::getLanePosition(name);
                        length = Vehicle::getLength(name);
                        speed = Vehicle::getSpeed(name);
                        read = true;
                    }
                    occupants.push_back({area, before + position, before + position - length, speed});
                }
            }
        }
    }

    template <typename Consider>
    void vehicles_approaching(const Path& path, double driven, Consider consider) {
        string lights;
        for (const ApproachLane& lane : path.approach_lanes) {
            for (const string& name : libsumo::Lane::getLastStepVehicleIDs(lane.id)) {
                const int onto = next_edge(name);
                const Area* area = nullptr;
                for (const auto& [edge, index] : lane.areas)
                    if (edge == onto) area = &path.areas[index];
                if (area == nullptr || name == EGO) continue;
                if (area->light != "-") {
                    if (lights.empty()) lights = libsumo::TrafficLight::getRedYellowGreenState(area->light);
                    if (red(lights.at(area->light_index))) continue;
                }
                const double distance = lane.length - Vehicle::getLanePosition(name) + area->other_entry;
                if (distance <= CONFLICT_RANGE && driven < area->entry) consider(*area, distance, Vehicle::getSpeed(name));
            }
        }
    }

    int next_edge(const string& name) const {
        auto user = users.find(name);
        if (user == users.end()) return -1;
        const size_t index = Vehicle::getRouteIndex(name) + 1;
        return index < user->second.route.size() ? user->second.route[index] : -1;
    }

    void update_pet(Traversal& traversal, double driven, double now) {
        const Path& path = street.paths[traversal.path];
        if (occupants.empty() && driven < path.first_entry) return;
        for (size_t index = 0; index < path.areas.size(); ++index) {
            const Area& area = path.areas[index];
            bool occupied = false;
            for (const Occupant& other : occupants)
                occupied |= other.area == static_cast<int>(index) && other.front >= area.other_entry &&
                            other.rear <= area.other_exit;
            min_pet = std::min(min_pet, traversal.encroachments[index].update(area, driven, occupied, now));
        }
    }

    static bool obstructs(const Area& area, double front, double rear, double speed, int light) {
        if (rear > area.other_exit) return false;
        const double gap = area.other_entry - front;
        return gap <= 0.0 || (area.ego_yields && light != 'G') || speed * speed > 2.0 * EXPECTED_DECELERATION * gap;
    }

    void nearest_pedestrian(const CrosswalkArea& area, double ahead, Conflict& best) const {
        if (ahead > CONFLICT_RANGE) return;
        for (const string& edge : area.edges) {
            const bool crossing = edge == area.id;
            for (const string& name : libsumo::Edge::getLastStepPersonIDs(edge)) {
                const auto position = libsumo::Person::getPosition(name, false);
                const double along = ((position.x - area.ax) * area.dx + (position.y - area.ay) * area.dy) / area.length;
                const double speed = libsumo::Person::getSpeed(name);
                if (crossing) {
                    const double angle = libsumo::Person::getAngle(name) * RADIANS;
                    const bool forward = area.dx * std::sin(angle) + area.dy * std::cos(angle) > area.forward_threshold;
                    if ((forward ? along - area.across : area.across - along) > 1.5) continue;
                } else if (speed < 0.1 || libsumo::Person::getNextEdge(name) != area.id) {
                    continue;
                }
                const double distance = std::abs(along - area.across);
                if (best.present == 0.0 || ahead < best.ego_distance || distance < best.other_distance)
                    best = {1.0, std::max(0.0, std::min(CONFLICT_RANGE, ahead)), std::min(CONFLICT_RANGE, distance), speed};
            }
        }
    }
};
}  // namespace car_street
