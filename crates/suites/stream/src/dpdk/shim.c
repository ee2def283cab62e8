/* The parts of DPDK that only C can use: inline functions, and structures whose layout depends on the version. */

/* For sets of CPUs. */
#define _GNU_SOURCE

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

/* Packets that are received at a time; `BURST` of link/mod.rs. */
#define BURST 64
/* Free buffers that each core keeps. */
#define CACHE 256

/* The structures of ffi.rs. */
struct packet {
    struct rte_mbuf *mbuf;
    uint8_t *start;
    /* In bytes; 0 if the packet is in several buffers. */
    uint32_t length;
};

struct description {
    char name[RTE_ETH_NAME_MAX_LEN];
    char driver[RTE_ETH_NAME_MAX_LEN];
    uint8_t address[RTE_ETHER_ADDR_LEN];
    uint16_t max_queues;
    uint16_t is_up;
    /* In Mbit/s; RTE_ETH_SPEED_NUM_UNKNOWN if the port does not report it. */
    uint32_t speed;
};

struct opened {
    struct rte_mempool *pool;
    uint16_t rx_depth;
    uint16_t tx_depth;
};

struct counters {
    uint64_t received, sent, missed, no_buffer, receive_errors, send_errors;
};

/* ffi.rs asserts the same of its structures. */
static_assert(sizeof(struct packet) == 24 && offsetof(struct packet, length) == 16, "packet");
static_assert(sizeof(struct description) == 144 && offsetof(struct description, address) == 128, "description");
static_assert(offsetof(struct description, speed) == 140, "description");
static_assert(sizeof(struct opened) == 16 && offsetof(struct opened, tx_depth) == 10, "opened");
static_assert(sizeof(struct counters) == 48 && offsetof(struct counters, send_errors) == 40, "counters");

/* Has DPDK log warnings and errors to standard error, and neither to standard output nor to the system's log. */
void tollgate_dpdk_log_to_stderr(void)
{
    rte_openlog_stream(stderr);
    rte_log_set_global_level(RTE_LOG_WARNING);
}

int tollgate_dpdk_errno(void)
{
    return rte_errno;
}

/* Returns the first CPU of EAL's core number `index`; without the main core unless it is the only one. -1 if there are fewer. */
int tollgate_dpdk_cpu(unsigned index)
{
    unsigned lcore = -1, skip_main = rte_lcore_count() > 1;
    do
        lcore = rte_get_next_lcore(lcore, skip_main, 0);
    while (lcore < RTE_MAX_LCORE && index-- > 0);
    if (lcore >= RTE_MAX_LCORE)
        return -1;
    const rte_cpuset_t cpus = rte_lcore_cpuset(lcore);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            return cpu;
    return -1;
}

/* Stores the numbers of the first `max` ports that no other part of DPDK owns, and returns how many there are. */
unsigned tollgate_dpdk_ports(uint16_t *ports, unsigned max)
{
    unsigned count = 0;
    uint16_t port;
    RTE_ETH_FOREACH_DEV(port) {
        if (count < max)
            ports[count] = port;
        count++;
    }
    return count;
}

int tollgate_dpdk_describe(uint16_t port, struct description *to)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr address;
    struct rte_eth_link link = {0};
    int status = rte_eth_dev_info_get(port, &info);
    memset(to, 0, sizeof *to);
    if (status == 0)
        status = rte_eth_dev_get_name_by_port(port, to->name);
    if (status != 0)
        return status;
    snprintf(to->driver, sizeof to->driver, "%s", info.driver_name);
    if (rte_eth_macaddr_get(port, &address) == 0)
        memcpy(to->address, address.addr_bytes, sizeof to->address);
    to->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    if (rte_eth_link_get_nowait(port, &link) == 0)
        to->is_up = link.link_status == RTE_ETH_LINK_UP;
    to->speed = link.link_speed;
    return 0;
}

/*
 * Configures and starts a port with `queues` queues of each kind. Several of them share the packets by the hash of their flow
 * if the driver can be told so; otherwise it decides.
 *
 * Returns 0, or a negative error number. `step` is then what has failed. The caller stops the port in any case.
 */
int tollgate_dpdk_start(uint16_t port, uint16_t queues, uint16_t depth, struct opened *to, const char **step)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {0};
    int status, socket = rte_eth_dev_socket_id(port);

    *to = (struct opened){ .rx_depth = depth, .tx_depth = depth };
    *step = "read the features";
    if ((status = rte_eth_dev_info_get(port, &info)) != 0)
        return status;
    const uint64_t hashes = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
    if (queues > 1 && hashes != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hashes;
    }
    /* All buffers are from one pool, have one reference, and are not chained. */
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    *step = "configure the queues";
    if ((status = rte_eth_dev_configure(port, queues, queues, &conf)) != 0)
        return status;
    if ((status = rte_eth_dev_adjust_nb_rx_tx_desc(port, &to->rx_depth, &to->tx_depth)) != 0)
        return status;

    /* The rings may be full, and each core has some of them in bursts, in its cache, and in packets that wait to be sent. */
    const unsigned buffers = queues * (to->rx_depth + to->tx_depth + 2 * CACHE + 4 * BURST);
    *step = "allocate the packet buffers";
    to->pool = rte_pktmbuf_pool_create("tollgate", buffers, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, socket);
    if (to->pool == NULL)
        return -rte_errno;

    *step = "create the queues";
    for (uint16_t queue = 0; queue < queues; queue++) {
        struct rte_eth_txconf tx = info.default_txconf;
        tx.offloads = conf.txmode.offloads;
        status = rte_eth_rx_queue_setup(port, queue, to->rx_depth, socket, NULL, to->pool);
        if (status == 0)
            status = rte_eth_tx_queue_setup(port, queue, to->tx_depth, socket, &tx);
        if (status != 0)
            return status;
    }
    *step = "start";
    if ((status = rte_eth_dev_start(port)) != 0)
        return status;
    *step = "set the port promiscuous";
    status = rte_eth_promiscuous_enable(port);
    /* Software ports receive everything. */
    return status == -ENOTSUP ? 0 : status;
}

int tollgate_dpdk_counters(uint16_t port, struct counters *to)
{
    struct rte_eth_stats stats;
    const int status = rte_eth_stats_get(port, &stats);
    if (status == 0)
        *to = (struct counters){ stats.ipackets, stats.opackets, stats.imissed, stats.rx_nombuf,
                                 stats.ierrors, stats.oerrors };
    return status;
}

/* Receives up to BURST packets, and requests their first cache lines. */
uint16_t tollgate_dpdk_receive(uint16_t port, uint16_t queue, struct packet *packets)
{
    struct rte_mbuf *mbufs[BURST];
    const uint16_t count = rte_eth_rx_burst(port, queue, mbufs, BURST);
    for (uint16_t index = 0; index < count; index++) {
        struct rte_mbuf *mbuf = mbufs[index];
        uint8_t *start = rte_pktmbuf_mtod(mbuf, uint8_t *);
        rte_prefetch0(start);
        packets[index] = (struct packet){ mbuf, start, mbuf->nb_segs == 1 ? mbuf->data_len : 0 };
    }
    return count;
}

/* Sends packets, and returns how many there was space for; the others remain the caller's. */
uint16_t tollgate_dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
    return rte_eth_tx_burst(port, queue, mbufs, count);
}

/* Sets the length of a packet in one buffer, which has the space. */
void tollgate_dpdk_set_length(struct rte_mbuf *mbuf, uint16_t length)
{
    mbuf->data_len = length;
    mbuf->pkt_len = length;
}
