// A street's constants as the step needs them: lanes, paths through junctions, conflict areas, crossings.
//
// street.py, geometry.py and JunctionTraversal compute them; compiled_step.py sends them as text, once per street and path.
// Lanes, edges and paths are indices into the street's tables.
#pragma once
#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace car_street {
using std::string;
using std::vector;

const double INF = std::numeric_limits<double>::infinity();

struct Area {
    double entry, exit, other_entry, other_exit;
    int ego_yields, onto;
    string light;  // of the other path; "-": none
    int light_index;
};
struct InnerLane {
    string id;
    vector<std::pair<int, double>> areas;  // area, metres from the path's start
};
struct ApproachLane {
    string id;
    double length;
    vector<std::pair<int, int>> areas;  // edge, area
};
struct CrosswalkArea {
    string id;
    double entry, exit, across, ax, ay, dx, dy, length, forward_threshold;
    vector<string> edges;  // the crossing, then its kerbs
};
struct Lane {
    string id;
    int edge, rank, count;
    double length;
    int internal, path;  // path: of an internal lane
    double before;       // metres from that path's start
};
struct Path {
    int light, known = 0;
    double first_entry = INF;
    vector<Area> areas;
    vector<InnerLane> inner_lanes;
    vector<ApproachLane> approach_lanes;
    vector<CrosswalkArea> crosswalk_areas;
};
struct Street {
    vector<Lane> lanes;
    vector<Path> paths;
    std::unordered_map<string, int> lane_by_id;
    std::unordered_map<long long, int> turns;  // lane and edge -> path
    bool has_lights = false;

    int path(int lane, int onto) const {
        auto turn = turns.find((static_cast<long long>(lane) << 32) | onto);
        return turn == turns.end() ? -1 : turn->second;
    }
};

// Read the lanes (id edge rank count length internal path before), the number of paths with whether each has a light, the
// turns (lane edge path) and whether the street has lights. Return whether the text is whole.
inline bool read(std::istringstream& in, Street& street) {
    size_t count = 0;
    in >> count;
    street.lanes.resize(count);
    for (size_t i = 0; i < count; ++i) {
        Lane& lane = street.lanes[i];
        in >> lane.id >> lane.edge >> lane.rank >> lane.count >> lane.length >> lane.internal >> lane.path >> lane.before;
        street.lane_by_id[lane.id] = static_cast<int>(i);
    }
    in >> count;
    street.paths.resize(count);
    for (Path& path : street.paths) in >> path.light;
    in >> count;
    for (long long lane, edge, path; count && in >> lane >> edge >> path; --count)
        street.turns[lane << 32 | edge] = static_cast<int>(path);
    in >> street.has_lights;
    return static_cast<bool>(in);
}

// Read a path's conflict areas, inner lanes, approach lanes and crossings, in the order of the members above.
inline bool read(std::istringstream& in, Path& path) {
    size_t count = 0, inner = 0;
    in >> count;
    path.areas.resize(count);
    for (Area& area : path.areas) {
        in >> area.entry >> area.exit >> area.other_entry >> area.other_exit >> area.ego_yields >> area.onto >> area.light >>
            area.light_index;
        path.first_entry = std::min(path.first_entry, area.entry);
    }
    in >> count;
    path.inner_lanes.resize(count);
    for (InnerLane& lane : path.inner_lanes) {
        in >> lane.id >> inner;
        lane.areas.resize(inner);
        for (auto& [area, before] : lane.areas) in >> area >> before;
    }
    in >> count;
    path.approach_lanes.resize(count);
    for (ApproachLane& lane : path.approach_lanes) {
        in >> lane.id >> lane.length >> inner;
        lane.areas.resize(inner);
        for (auto& [edge, area] : lane.areas) in >> edge >> area;
    }
    in >> count;
    path.crosswalk_areas.resize(count);
    for (CrosswalkArea& area : path.crosswalk_areas) {
        in >> area.id >> area.entry >> area.exit >> area.across >> area.ax >> area.ay >> area.dx >> area.dy >> area.length >>
            area.forward_threshold >> inner;
        area.edges.resize(inner);
        for (string& edge : area.edges) in >> edge;
    }
    path.known = static_cast<bool>(in);
    return path.known;
}
}  // namespace car_street
