/* Pipes of the software NIC for programs in C and C++.
 *
 * The NIC is another process, tollgate stream generate. A device is one thread's access to it; a pipe is a ring in memory
 * that the program shares with the NIC. Nothing is copied: received bytes are where the NIC wrote them, and bytes are sent
 * from where the program wrote them. Names follow Enso's library: bind, recv, free, send.
 *
 * Results. A function returns TG_OK or a negative code; functions that return a count return it as int64_t, or a negative
 * code. After a negative code tg_error() returns one line of text: what, the cause, and the fix. No function ends the
 * process or throws an exception.
 *
 * Threads. A device and its pipes are used only by the thread that created the device, and each thread can have devices. A
 * handle is a number and not an address. A handle that was closed, or that another thread created, is TG_NO_HANDLE. A
 * thread that ends closes its devices. All devices of a process that name the same socket are one program for the NIC. The
 * library has one thread per NIC, in which all signals are blocked. No function may be called by a signal handler. The
 * child of a fork has no devices, and can create some only if its parent had none.
 *
 * Memory. Addresses of received bytes and of buffers are valid until their pipe is closed. Bytes that are freed or sent
 * belong to the NIC, which may overwrite them.
 */
#ifndef TOLLGATE_PIPES_H
#define TOLLGATE_PIPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Result codes. */
enum {
    TG_OK = 0,
    TG_INVALID = -1,   /* an argument is wrong, or the pipe's kind does not have the operation */
    TG_NO_HANDLE = -2, /* not a device or pipe of this thread: closed, or created by another thread */
    TG_NO_NIC = -3,    /* no NIC at the socket's path */
    TG_REFUSED = -4,   /* the NIC refuses the request: a limit, other sizes, another program's flow */
    TG_CLOSED = -5,    /* the NIC has stopped */
    TG_FULL = -6,      /* the NIC's flow table has no space for the flow */
    TG_RANGE = -7,     /* more bytes than have arrived, are confirmed, or are free */
    TG_SYSTEM = -8,    /* the kernel refuses, e.g. for lack of memory */
    TG_INTERNAL = -9   /* an error in the library */
};

/* Kinds of pipes. */
enum {
    TG_RX = 1,   /* receives */
    TG_TX = 2,   /* sends from a ring of the program */
    TG_RX_TX = 3 /* receives, and sends from the same ring */
};

/* Protocol numbers. */
enum { TG_TCP = 6, TG_UDP = 17 };

/* The NIC transfers flits of this number of bytes. Each packet starts at a flit. */
#define TG_FLIT 64

/* Packets that belong together. Addresses and ports are numbers: 192.168.0.1 is 0xc0a80001, port 80 is 80.
 *
 * The NIC compares the fields that its hardware looks up. With UDP the source is 0. With TCP the source is 0 for new
 * connections (SYN), or all fields are set for an open one. With other protocols all fields but dst_ip are 0. */
typedef struct {
    uint32_t dst_ip;
    uint32_t src_ip;
    uint16_t dst_port;
    uint16_t src_port;
    uint32_t protocol;
} tg_flow;

typedef struct tg_device tg_device;
typedef struct tg_pipe tg_pipe;

/* Returns the text of this thread's last error. It is valid until the thread's next error. */
const char *tg_error(void);

/* Creates a device of this thread for the NIC at a socket. Rings have ring_bytes, a power of two from 4096 to 2^30; 0 means
 * 2 MiB, as in the hardware. The NIC has one size of rings, that of its first program. */
int tg_device_create(const char *socket, size_t ring_bytes, tg_device **device);

/* Sends the last packets, for at most a second, then closes the device and all its pipes. */
int tg_device_close(tg_device *device);

/* Reports that the program is ready. The generator starts when the first program is ready. */
int tg_device_ready(tg_device *device);

/* Returns the CPU that the NIC uses and the program should not. */
int tg_device_nic_cpu(tg_device *device);

/* Sets *pipe to the next pipe that has received bytes, or to NULL if none has. It may have none left if they were received
 * before. Processes completions. Returns TG_CLOSED once the NIC has stopped and no pipe is left. */
int tg_device_next(tg_device *device, tg_pipe **pipe);

/* Processes completions and returns the number of requests to send that the NIC has not completed: 0 if all is sent.
 * Returns TG_CLOSED if the NIC has stopped before. */
int64_t tg_device_complete(tg_device *device);

/* Creates a pipe of a kind. */
int tg_pipe_create(tg_device *device, int kind, tg_pipe **pipe);

/* Closes a pipe once its packets are sent. */
int tg_pipe_close(tg_pipe *pipe);

/* Stores a pointer with a pipe, and returns it in *context: NULL at first. The library does not follow it. */
int tg_pipe_set_context(tg_pipe *pipe, void *context);
int tg_pipe_context(tg_pipe *pipe, void **context);

/* Directs packets of a flow to a pipe that receives. A pipe can have several flows. */
int tg_pipe_bind(tg_pipe *pipe, const tg_flow *flow);

/* Receives all bytes that have arrived: whole packets, each at a flit. Sets *data to the first of them and returns their
 * number, which may be 0; *data is readable and writable. They belong to the program until they are freed or sent. Returns
 * TG_CLOSED once the NIC has stopped and no bytes are left. */
int64_t tg_pipe_recv(tg_pipe *pipe, uint8_t **data);

/* As tg_pipe_recv, but returns at most max_bytes in whole flits, at least one, and does not confirm them: they are returned
 * again. The last packet may be cut. */
int64_t tg_pipe_peek(tg_pipe *pipe, size_t max_bytes, uint8_t **data);

/* Confirms the first bytes of a peek as received. All numbers of bytes are rounded up to flits. */
int tg_pipe_confirm(tg_pipe *pipe, size_t bytes);

/* Frees the oldest received bytes of a pipe of kind TG_RX. The NIC notifies of further packets only after bytes are freed or
 * sent, or a notification is requested. */
int tg_pipe_free(tg_pipe *pipe, size_t bytes);

/* Requests a notification of bytes that have arrived since the last. */
int tg_pipe_prefetch(tg_pipe *pipe);

/* Sets *data to the free memory of a pipe of kind TG_TX and returns its size in bytes. Waits until at least min_bytes are
 * free; does not wait if min_bytes is 0. */
int64_t tg_pipe_buffer(tg_pipe *pipe, size_t min_bytes, uint8_t **data);

/* Sends bytes: packets, each at a flit. A pipe of kind TG_TX sends the first bytes of its buffer, one of kind TG_RX_TX the
 * oldest received ones. Their memory is free again once the NIC has sent them. Does nothing for 0 bytes. */
int tg_pipe_send(tg_pipe *pipe, size_t bytes);

/* Returns the length of an IPv4 packet in bytes, from its Ethernet header to its end, without padding to a flit. */
static inline size_t tg_packet_length(const uint8_t *packet) {
    uint16_t total;
    memcpy(&total, packet + 16, sizeof total);
    size_t length = (size_t)(uint16_t)(total >> 8 | total << 8) + 14;
    return length < 60 ? 60 : length;
}

/* Returns a number of bytes rounded up to flits. */
static inline size_t tg_padded(size_t bytes) {
    return (bytes + TG_FLIT - 1) / TG_FLIT * TG_FLIT;
}

/* Iterator over received packets. */
typedef struct {
    uint8_t *next;
    size_t left;
    /* Length of the last packet, and the same rounded up to flits. */
    size_t length;
    size_t stride;
} tg_packets;

/* Returns an iterator over received bytes. */
static inline tg_packets tg_packets_of(uint8_t *data, size_t bytes) {
    tg_packets packets = {data, bytes, 60, TG_FLIT};
    return packets;
}

#if defined(__GNUC__)
__attribute__((noinline, cold))
#endif
static void tg_packets_learn(tg_packets *packets, size_t length) {
    packets->length = length;
    packets->stride = tg_padded(length);
}

/* Returns the next packet and sets *length, or returns NULL if no whole packet is left. */
static inline uint8_t *tg_packets_next(tg_packets *packets, size_t *length) {
    uint8_t *packet = packets->next;
    if (packets->left < TG_FLIT) {
        return NULL;
    }
    /* Most packets have the length of the one before. A branch lets the CPU fetch the next ones before it knows; an
     * address that is computed from each length would wait for it. */
    size_t found = tg_packet_length(packet);
    if (found != packets->length) {
        tg_packets_learn(packets, found);
    }
    if (packets->stride > packets->left) {
        packets->left = 0;
        return NULL;
    }
    packets->next += packets->stride;
    packets->left -= packets->stride;
    *length = packets->length;
    return packet;
}

#ifdef __cplusplus
}
#endif

#endif
