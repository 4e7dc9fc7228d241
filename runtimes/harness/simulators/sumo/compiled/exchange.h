// The loop of a scenario: each observation goes to the model, and its action into the next step.
//
// What every reply is expected to be is decided here; every other case pauses the loop, and Python's own functions decide
// (model_server/direct_loop.py): errors, parts of replies, missed deadlines, actions that are not finite.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "episode.h"

namespace car_street {
// Shared with simulators/direct_exchange.py, which declares the same members in the same order.
struct Exchange {
    unsigned char *request, *observed, *head, *reply;
    const unsigned* numbers;  // sequence numbers, used from the last one on
    double* latencies;
    unsigned char* actions;
    size_t request_size, seq_in_request, head_size, seq_in_reply, expected, room;
    ssize_t sent, received;  // bytes of the last request and reply; received: -1 after an error
    double deadline, started, latency;
    int socket, numbers_left, seq, error;
    int settled;  // whether the reply to the last request is here already, and `latency` is known
    int capacity, answered, applied;
    int (*answer)();  // a model in this process: it puts its action at `reply`, or returns 0; null: a model server
};
// Why the loop has paused; negative numbers are those of step.cpp.
enum Pause { OVER = 1, FULL = 2, UNUSUAL = 3, LATE = 4, NOT_FINITE = 5, EVENT_FAILED = 6 };

const int ACTION = 2, OBSERVATION = 32;

inline double monotonic() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec * 1000000000LL + now.tv_nsec) / 1e9;
}

// MessagePack's order of bytes.
inline void put(unsigned char* place, unsigned number) {
    for (int i = 3; i >= 0; --i, number >>= 8) place[i] = static_cast<unsigned char>(number);
}

template <typename Call>
ssize_t uninterrupted(Call call) {
    ssize_t count;
    do count = call();
    while (count < 0 && errno == EINTR);
    return count;
}

// Send a request and receive its reply; return whether the reply is the expected one.
inline bool ask(Exchange& exchange) {
    exchange.seq = static_cast<int>(exchange.numbers[--exchange.numbers_left]);
    put(exchange.request + exchange.seq_in_request, static_cast<unsigned>(exchange.seq));
    put(exchange.head + exchange.seq_in_reply, static_cast<unsigned>(exchange.seq));
    exchange.sent = 0, exchange.received = -1, exchange.error = 0;
    exchange.started = monotonic();
    const ssize_t sent = uninterrupted(
        [&] { return send(exchange.socket, exchange.request, exchange.request_size, MSG_NOSIGNAL); });
    if (sent < 0) {
        exchange.error = errno;
        return false;
    }
    exchange.sent = sent;
    if (static_cast<size_t>(sent) != exchange.request_size) return false;
    exchange.received = uninterrupted([&] { return recv(exchange.socket, exchange.reply, exchange.room, 0); });
    if (exchange.received < 0) exchange.error = errno;
    return exchange.received == static_cast<ssize_t>(exchange.expected) &&
           !std::memcmp(exchange.reply, exchange.head, exchange.head_size);
}

// Let a model in this process answer; return whether it has.
inline bool call(Exchange& exchange) {
    exchange.started = monotonic();
    return exchange.answer() != 0;
}

// Drive until the scenario is over or something else has to be done. `event` commands the actors before each step and
// returns 0; -1: it has failed, 1: it has nothing more to do.
inline int drive(Exchange& exchange, Episode& episode, int (*event)(), float* out) {
    for (;;) {
        if (!exchange.settled) {
            const bool called = exchange.answer != nullptr;
            if (exchange.answered == exchange.capacity || (!called && exchange.numbers_left == 0)) return FULL;
            if (!(called ? call(exchange) : ask(exchange))) return UNUSUAL;
            exchange.latency = monotonic() - exchange.started;
            if (exchange.latency > exchange.deadline) return LATE;
        }
        exchange.settled = 0;
        exchange.latencies[exchange.answered++] = exchange.latency;
        float action[ACTION];
        std::memcpy(action, exchange.reply + exchange.head_size, sizeof action);
        if (!std::isfinite(action[0]) || !std::isfinite(action[1])) return NOT_FINITE;
        std::memcpy(exchange.actions + exchange.applied++ * sizeof action, action, sizeof action);
        if (event != nullptr) {
            const int done = event();
            if (done < 0) return EVENT_FAILED;
            if (done > 0) event = nullptr;
        }
        if (episode.step(action[0], action[1], out)) return OVER;
        std::memcpy(exchange.observed, out, OBSERVATION * sizeof(float));
    }
}
}  // namespace car_street
