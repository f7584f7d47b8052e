// SPDX-License-Identifier: Apache-2.0
// An intruder with every capability over the sandbox's network, as if the sandbox had taken its own user namespace over:
// enters from outside as the namespaces' owner, takes all rules away, and tries again. In a test without sandboxes nothing
// of the host is changed; only the attempts behind it are made.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "daemon/probe.h"
#include "net/net.h"
#include "net/netlink.h"

static bool inside(const struct probe *probe) { return probe_target(probe, "intruded")[0] != '\0'; }

int intruder_enter(const struct probe *probe) {
    char path[64];
    if (!inside(probe)) return 0;
    snprintf(path, sizeof(path), "/proc/%.20s/ns/net", probe_target(probe, "intruded"));
    AUTO_CLOSE int net = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int owner = net >= 0 ? ioctl(net, NS_GET_USERNS) : -1;
    if (owner < 0 || setns(owner, CLONE_NEWUSER) < 0 || setns(net, CLONE_NEWNET) < 0) return -errno;
    return nft_flush();
}

static int set_link(int fd, const char *name, bool up) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    request.ifr_flags = up ? IFF_UP | IFF_RUNNING : 0;
    return ioctl(fd, SIOCSIFFLAGS, &request);
}

static int set_address(int fd, const char *address) {
    struct ifreq request = {.ifr_name = "lo"};
    struct sockaddr_in at = {.sin_family = AF_INET};
    inet_pton(AF_INET, address, &at.sin_addr);
    memcpy(&request.ifr_addr, &at, sizeof(at));
    return ioctl(fd, SIOCSIFADDR, &request) == 0 || errno == EEXIST ? 0 : -1; // the second time it is there
}

static int add_default_routes(int fd4, int fd6) {
    char device[] = "lo";
    struct rtentry route = {.rt_flags = RTF_UP, .rt_dev = device};
    route.rt_dst.sa_family = route.rt_genmask.sa_family = AF_INET;
    struct in6_rtmsg route6 = {.rtmsg_flags = RTF_UP, .rtmsg_metric = 1, .rtmsg_ifindex = (int)if_nametoindex("lo")};
    bool added = ioctl(fd4, SIOCADDRT, &route) == 0 || errno == EEXIST;
    return added && (ioctl(fd6, SIOCADDRT, &route6) == 0 || errno == EEXIST) ? 0 : -1;
}

// Down and up takes every route on lo away; then an address and default routes of the intruder's own.
enum probe_result intruder_routes(struct probe *probe, const char *argument) {
    AUTO_CLOSE int fd4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    AUTO_CLOSE int fd6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (inside(probe) && (set_link(fd4, "lo", false) < 0 || set_link(fd4, "lo", true) < 0 || set_address(fd4, "10.0.0.1") < 0 ||
                          add_default_routes(fd4, fd6) < 0))
        return probe_say(probe, PROBE_BROKEN, "the routes cannot be changed: %s", strerror(errno));
    return network_tcp(probe, argument);
}

// A veth pair (RTM_NEWLINK) whose other end is in the namespace of a process of the host.
static int make_veth(struct netlink *netlink, uint32_t pid) {
    const struct ifinfomsg link = {0};
    netlink_message(netlink, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &link, sizeof(link));
    netlink_put_text(netlink, IFLA_IFNAME, "pst-inside");
    size_t info = netlink_nest(netlink, IFLA_LINKINFO);
    netlink_put_text(netlink, IFLA_INFO_KIND, "veth");
    size_t data = netlink_nest(netlink, IFLA_INFO_DATA);
    size_t peer = netlink_nest(netlink, VETH_INFO_PEER);
    netlink_put_head(netlink, &link, sizeof(link));
    netlink_put_text(netlink, IFLA_IFNAME, "pst-outside");
    netlink_put_u32(netlink, IFLA_NET_NS_PID, pid);
    netlink_nest_end(netlink, peer);
    netlink_nest_end(netlink, data);
    netlink_nest_end(netlink, info);
    return netlink_run(netlink, NULL);
}

static void remove_link(struct netlink *netlink, const char *name) {
    const struct ifinfomsg link = {0};
    netlink_message(netlink, RTM_DELLINK, NLM_F_ACK, &link, sizeof(link));
    netlink_put_text(netlink, IFLA_IFNAME, name);
    netlink_run(netlink, NULL);
}

enum probe_result intruder_link(struct probe *probe, const char *argument) {
    uint64_t pid;
    struct netlink netlink = NETLINK_INIT;
    bool ready = netlink_open(&netlink, NETLINK_ROUTE) == 0 && number_parse(argument, strlen(argument), 1, INT32_MAX, &pid) == 0;
    int rc = ready ? make_veth(&netlink, (uint32_t)pid) : -EINVAL;
    if (rc == 0) remove_link(&netlink, "pst-inside"); // and so its peer
    netlink_close(&netlink);
    if (!ready) return probe_say(probe, PROBE_BROKEN, "no netlink socket");
    return probe_refused(probe, rc, "a link to the host's namespace");
}

enum probe_result intruder_return(struct probe *probe, const char *argument) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/ns/net", argument);
    AUTO_CLOSE int net = open(path, O_RDONLY | O_CLOEXEC);
    return probe_refused(probe, net >= 0 ? setns(net, CLONE_NEWNET) : -1, "entering the host's network");
}
