// Declarations of the functions of libsumo 1.28 that compiled_step.cpp calls; SUMO's wheel has no headers.
//
// libsumo's public C++ API (src/libsumo/*.h, EPL-2.0): signatures and members as SUMO has them; and of Xerces-C++ 3.2
// (util/PlatformUtils.hpp) what its users call first. They hold for the version that runtimes/simulators/sumo.lock pins
// by hash: after a change of the lock, compare them with the headers that eclipse-sumo's wheel brings.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace libsumo {
struct TraCIException : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct FatalTraCIError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct TraCIResult {
    virtual ~TraCIResult() {}
    virtual std::string getString() const { return ""; }
    virtual int getType() const { return -1; }
};
struct TraCIPosition : TraCIResult {
    double x, y, z;
};
struct TraCINextTLSData {
    std::string id;
    int tlIndex;
    double dist;
    char state;
};
struct TraCIBestLanesData {
    std::string laneID;
    double length;
    double occupation;
    int bestLaneOffset;
    bool allowsContinuation;
    std::vector<std::string> continuationLanes;
};
struct TraCICollision {
    std::string collider, victim, colliderType, victimType;
    double colliderSpeed, victimSpeed;
    std::string type, lane;
    double pos;
};
using Name = std::string;
struct Vehicle {
    static double getSpeed(const Name&);
    static double getAcceleration(const Name&);
    static double getAllowedSpeed(const Name&);
    static double getLanePosition(const Name&);
    static double getLateralLanePosition(const Name&);
    static double getDistance(const Name&);
    static double getLength(const Name&);
    static double getAngle(const Name&);
    static TraCIPosition getPosition(const Name&, bool with_height);
    static double getCO2Emission(const Name&);
    static double getDrivingDistance(const Name&, const std::string& edge, double position, int lane);
    static int getRouteIndex(const Name&);
    static std::string getLaneID(const Name&);
    static std::string getRoadID(const Name&);
    static std::pair<std::string, double> getLeader(const Name&, double distance);
    static std::pair<std::string, double> getFollower(const Name&, double distance);
    static std::vector<std::pair<std::string, double>> getNeighbors(const Name&, int mode);
    static std::vector<TraCINextTLSData> getNextTLS(const Name&);
    static std::vector<TraCIBestLanesData> getBestLanes(const Name&);
    static void setSpeed(const Name&, double);
    static void changeLaneRelative(const Name&, int offset, double duration);
};
struct Person {
    static TraCIPosition getPosition(const Name&, bool with_height);
    static double getSpeed(const Name&);
    static double getAngle(const Name&);
    static std::string getNextEdge(const Name&);
    static std::string getLaneID(const Name&);
    static std::vector<std::string> getIDList();
};
struct Lane {
    static std::vector<std::string> getLastStepVehicleIDs(const Name&);
};
struct Edge {
    static const std::vector<std::string> getLastStepPersonIDs(const Name&);
};
struct TrafficLight {
    static std::string getRedYellowGreenState(const Name&);
};
struct Simulation {
    static void step(double until);
    static std::vector<std::string> getArrivedIDList();
    static std::vector<TraCICollision> getCollisions();
};
}  // namespace libsumo

namespace xercesc_3_2 {
struct PanicHandler;
struct MemoryManager;
struct XMLPlatformUtils {
    static void Initialize(const char* locale, const char* messages, PanicHandler*, MemoryManager*);
};
}  // namespace xercesc_3_2
