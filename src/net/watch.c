// SPDX-License-Identifier: Apache-2.0
// One level-triggered epoll set, itself one event of the loop. A descriptor that was ever given to libevent costs for the life
// of the process (a pointer by its number, in an array that doubles, and what that points to); here it costs nothing once it
// is not watched any more.
//
// A callback may stop any watch and free what it is in: what the same epoll_wait told of that one is then forgotten.
#include <errno.h>
#include <event2/event.h>
#include <sys/epoll.h>

#include "base/mem.h"
#include "net/net.h"

#define WATCH_EVENTS 64 // of a turn

struct watcher {
    struct event *event; // the epoll set
    int epoll;
    int at, count; // of told, while callbacks are called
    struct epoll_event told[WATCH_EVENTS];
};

static void watcher_event(evutil_socket_t fd, short what, void *data) {
    struct watcher *watcher = data;
    (void)what;
    watcher->count = epoll_wait(fd, watcher->told, WATCH_EVENTS, 0);
    for (watcher->at = 0; watcher->at < watcher->count; watcher->at++) {
        struct watch *watch = watcher->told[watcher->at].data.ptr;
        if (watch) watch->ready(watch->fd, watch->data);
    }
    watcher->count = 0;
}

int watcher_new(struct event_base *base, struct watcher **ret_watcher) {
    struct watcher *watcher = NEW(struct watcher);
    if (!watcher) return -ENOMEM;
    watcher->epoll = epoll_create1(EPOLL_CLOEXEC);
    int error = watcher->epoll < 0 ? -errno : 0;
    if (error == 0) watcher->event = event_new(base, watcher->epoll, EV_READ | EV_PERSIST, watcher_event, watcher);
    if (error == 0 && (!watcher->event || event_add(watcher->event, NULL) < 0)) error = -ENOMEM;
    if (error == 0) *ret_watcher = watcher;
    else watcher_free(watcher);
    return error;
}

void watcher_free(struct watcher *watcher) {
    if (!watcher) return;
    if (watcher->event) event_free(watcher->event);
    if (watcher->epoll >= 0) close(watcher->epoll);
    free(watcher);
}

int watch_start(struct watcher *watcher, struct watch *watch, int fd, watch_ready *ready, void *data) {
    watch_stop(watch);
    *watch = (struct watch){.watcher = watcher, .ready = ready, .data = data, .fd = fd};
    int error = watch_resume(watch);
    if (error < 0) watch->watcher = NULL;
    return error;
}

void watch_pause(struct watch *watch) {
    struct watcher *watcher = watch->watcher;
    if (!watch->on) return;
    watch->on = false;
    epoll_ctl(watcher->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    for (int i = watcher->at; i < watcher->count; i++)
        if (watcher->told[i].data.ptr == watch) watcher->told[i].data.ptr = NULL;
}

int watch_resume(struct watch *watch) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    if (watch->on) return 0;
    if (epoll_ctl(watch->watcher->epoll, EPOLL_CTL_ADD, watch->fd, &event) < 0) return -errno;
    watch->on = true;
    return 0;
}

void watch_stop(struct watch *watch) {
    watch_pause(watch);
    watch->watcher = NULL;
}
