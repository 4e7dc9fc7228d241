/* A model server written from docs/model-server.md only. A model is a text "scale offset": action = scale * x + offset.
 *
 *     cc -O1 -Wall -Wextra -Werror -o model_server model_server.c && ./model_server '{"socket": 3}'
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int connection, model = -1;
static uint8_t *frame;
static size_t room;

/* ---- reading: a frame's payload lies in `frame`; a cursor walks through it */

typedef struct { const uint8_t *at, *end; } Cursor;

static void leave(int code) { exit(code); }

static void receive(uint8_t *into, size_t want) {
    while (want) {
        union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } rights;
        struct iovec piece = {into, want};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = rights.room,
                                 .msg_controllen = sizeof rights.room};
        ssize_t got = recvmsg(connection, &message, 0);
        if (got <= 0) leave(0);
        struct cmsghdr *note = CMSG_FIRSTHDR(&message);
        if (note && note->cmsg_type == SCM_RIGHTS) memcpy(&model, CMSG_DATA(note), sizeof model);
        into += got, want -= (size_t)got;
    }
}

static uint64_t big(Cursor *c, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | (c->at < c->end ? *c->at++ : 0);
    return value;
}

/* Read a head: the kind of value ('i' number, 's' text, 'b' bytes, 'a' array, 'm' map, '0' nil, 't' truth,
 * 'f' float) and its number or length. */
static char head(Cursor *c, uint64_t *n) {
    if (c->at >= c->end) leave(2);
    uint8_t b = *c->at++;
    if (b < 0x80 || b >= 0xe0) return *n = b, 'i';
    if (b < 0x90) return *n = b & 15, 'm';
    if (b < 0xa0) return *n = b & 15, 'a';
    if (b < 0xc0) return *n = b & 31, 's';
    switch (b) {
    case 0xc0: return *n = 0, '0';
    case 0xc2: case 0xc3: return *n = b & 1, 't';
    case 0xc4: case 0xc5: case 0xc6: return *n = big(c, 1 << (b - 0xc4)), 'b';
    case 0xca: return *n = big(c, 4), 'f';
    case 0xcb: return *n = big(c, 8), 'f';
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return *n = big(c, 1 << (b - 0xcc)), 'i';
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return *n = big(c, 1 << (b - 0xd0)), 'i';
    case 0xd9: case 0xda: case 0xdb: return *n = big(c, 1 << (b - 0xd9)), 's';
    case 0xdc: case 0xdd: return *n = big(c, 2 << (b - 0xdc)), 'a';
    case 0xde: case 0xdf: return *n = big(c, 2 << (b - 0xde)), 'm';
    }
    leave(2);
    return 0;
}

static void skip(Cursor *c) {
    uint64_t n;
    switch (head(c, &n)) {
    case 's': case 'b': c->at += n; break;
    case 'a': while (n--) skip(c); break;
    case 'm': while (n--) skip(c), skip(c); break;
    }
}

/* Walk into a map and stop before the value of a key. */
static int find(Cursor *c, const char *key) {
    uint64_t entries, n;
    if (head(c, &entries) != 'm') return 0;
    while (entries--) {
        if (head(c, &n) != 's') return 0;
        int same = n == strlen(key) && !memcmp(c->at, key, n);
        c->at += n;
        if (same) return 1;
        skip(c);
    }
    return 0;
}

/* Return the elements of the space under a key of the request, or 0 if they are not float32. */
static uint64_t elements(Cursor request, const char *space) {
    uint64_t n, sizes, product = 1;
    if (!find(&request, space)) return 0;
    Cursor type = request, shape = request;
    if (!find(&type, "dtype") || head(&type, &n) != 's' || n != 7 || memcmp(type.at, "float32", 7)) return 0;
    if (!find(&shape, "shape") || head(&shape, &sizes) != 'a') return 0;
    while (sizes--) head(&shape, &n), product *= n;
    return product;
}

/* ---- writing: a reply is built after four bytes for its length */

static uint8_t reply[1 << 20];
static size_t length;

static void put(const void *bytes, size_t n) {
    if (length + n > sizeof reply) leave(2);
    memcpy(reply + length, bytes, n), length += n;
}

static void put_head(int small, int small_limit, const int *codes, uint64_t n) {
    uint8_t b[9];
    if (small_limit && n < (uint64_t)small_limit) { b[0] = (uint8_t)(small | n); put(b, 1); return; }
    int width = n < 1 << 8 && codes[0] ? 0 : n < 1 << 16 ? 1 : 2;
    b[0] = (uint8_t)codes[width];
    for (int i = 0; i < 1 << width; i++) b[1 + i] = (uint8_t)(n >> 8 * ((1 << width) - 1 - i));
    put(b, 1 + (1 << width));
}

static void put_number(uint64_t n) { put_head(0, 128, (int[]){0xcc, 0xcd, 0xce}, n); }
static void put_text(const char *s) { put_head(0xa0, 32, (int[]){0xd9, 0xda, 0xdb}, strlen(s)), put(s, strlen(s)); }
static void put_bytes(const void *b, size_t n) { put_head(0, 0, (int[]){0xc4, 0xc5, 0xc6}, n), put(b, n); }

static void begin(int members, const char *name) {
    length = 4;
    put(&(uint8_t){(uint8_t)(0x90 | members)}, 1), put_text(name);
}

static void answer(void) {
    for (int i = 0; i < 4; i++) reply[i] = (uint8_t)((length - 4) >> 8 * i);
    for (size_t sent = 0; sent < length;) {
        ssize_t n = send(connection, reply + sent, length - sent, MSG_NOSIGNAL);
        if (n <= 0) leave(0);
        sent += (size_t)n;
    }
}

static void put_map(const char *key, const char *value) { put(&(uint8_t){0x81}, 1), put_text(key), put_text(value); }

static void fail(uint64_t seq, const char *kind, const char *format, ...) {
    char text[500];
    va_list values;
    va_start(values, format), vsnprintf(text, sizeof text, format, values), va_end(values);
    begin(4, "error"), put_number(seq), put_text(text), put_text(kind), answer();
}

/* ---- the model */

static float scale, offset;
static uint64_t width;

static void load(uint64_t seq, Cursor request) {
    char text[64] = {0};
    uint64_t out = elements(request, "action");
    width = elements(request, "observation");
    if (model < 0 || pread(model, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%f %f", &scale, &offset) != 2)
        fail(seq, "invalid", "the model is not two numbers");
    else if (!width || width != out)
        fail(seq, "invalid", "the model answers as many float32 as it observes; the dataset observes %llu and acts by %llu",
             (unsigned long long)width, (unsigned long long)out);
    else
        begin(3, "loaded"), put_number(seq), put_map("library", "none"), answer();
}

static void act(uint64_t seq, Cursor c) {
    uint64_t n, bytes;
    head(&c, &n);
    if (head(&c, &bytes) != 'b' || bytes != n * width * sizeof(float)) { fail(seq, "failed", "odd observations"); return; }
    float *values = malloc(bytes);
    memcpy(values, c.at, bytes);
    for (uint64_t i = 0; i < n * width; i++) values[i] = scale * values[i] + offset;
    begin(3, "action"), put_number(seq), put_bytes(values, bytes), answer();
    free(values);
}

int main(int argc, char **argv) {
    const char *option = argc > 1 ? strstr(argv[1], "\"socket\":") : NULL;
    if (!option) return 2;
    connection = atoi(option + strlen("\"socket\":"));
    begin(3, "hello"), put_number(1), put_map("model_server", "c"), answer();
    for (;;) {
        uint8_t size[4];
        uint64_t n, seq;
        receive(size, 4);
        size_t want = (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
        if (want > room) frame = realloc(frame, room = want);
        receive(frame, want);
        Cursor c = {frame, frame + want};
        char name[8] = {0};
        if (head(&c, &n) != 'a' || head(&c, &n) != 's' || n >= sizeof name) return 2;
        memcpy(name, c.at, n), c.at += n;
        head(&c, &seq);
        if (!strcmp(name, "load")) load(seq, c);
        else if (!strcmp(name, "reset")) begin(2, "ready"), put_number(seq), answer();
        else if (!strcmp(name, "act")) act(seq, c);
        else if (!strcmp(name, "close")) return 0;
        else if (strcmp(name, "done")) return 2;
    }
}
