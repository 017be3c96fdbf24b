#!/usr/bin/python3
"""kazoo's recipes: `peer.py HOSTS [lock|semaphore|queue]` takes the orders that Peer.pm
describes, from standard input.  All threads share one session.

`peer.py HOST:PORT etcd` does so with etcd's lock, which is the Mutex of its package
concurrency: the server has that as a service, and speaks JSON."""
import base64
import http.client
import json
import statistics
import sys
import threading
import time

what = sys.argv[2] if len(sys.argv) > 2 else 'lock'
threading.stack_size(256 << 10)
if what != 'etcd':
    from kazoo.client import KazooClient

    client = KazooClient(hosts=sys.argv[1], timeout=10)
    client.start()


def start(count, target):
    threads = [threading.Thread(target=target, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


class Queue:
    """To acquire is to put an item, to release is to take the oldest one."""

    def __init__(self, name):
        self.queue = client.LockingQueue('/bench/kazoo-queue-%d' % name)

    def acquire(self):
        self.queue.put(b'x' * 100)

    def release(self):
        self.queue.get()
        self.queue.consume()


class Etcd:
    """A session of etcd is a lease; a thread has one connection."""

    def __init__(self, name):
        self.name = base64.b64encode(b'bench-%d' % name).decode()
        self.connection = http.client.HTTPConnection(sys.argv[1])
        self.lease = self.call('lease/grant', TTL=600)['ID']

    def call(self, what, **arguments):
        self.connection.request('POST', '/v3/' + what, json.dumps(arguments))
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(answer)
        return json.loads(answer)

    def queued(self):
        prefix = base64.b64decode(self.name)
        first, last = (base64.b64encode(prefix + end).decode() for end in (b'/', b'0'))
        return int(self.call('kv/range', key=first, range_end=last, count_only=True)['count'])

    def acquire(self):
        self.key = self.call('lock/lock', name=self.name, lease=self.lease)['key']

    def release(self):
        self.call('lock/unlock', key=self.key)


def lock(name):
    if what == 'etcd':
        return Etcd(name)
    if what == 'queue':
        return Queue(name)
    if what == 'semaphore':
        return client.Semaphore('/bench/kazoo-semaphore-%d' % name, max_leases=4)
    return client.Lock('/bench/kazoo-%d' % name)


def run(clients, names, seconds):
    """Acquire and release for so long."""
    times = []
    end = time.monotonic() + seconds

    def work(number):
        mine = lock(number % names)
        begun = time.monotonic()
        while begun < end:
            mine.acquire()
            mine.release()
            now = time.monotonic()
            times.append(now - begun)
            begun = now

    for thread in start(clients, work):
        thread.join()
    return '%d %.1f' % (len(times), statistics.median(times) * 1e6)


held = lock(1000)
waiting = []


def fill(waiters):
    """Take a lock and let so many threads queue for it."""
    global waiting

    def wait(_):
        mine = lock(1000)
        mine.acquire()
        mine.release()

    held.acquire()
    waiting = start(waiters, wait)
    while what == 'etcd' and held.queued() <= waiters:
        time.sleep(0.01)
    return 'ok'


def drain():
    """Let the lock go; milliseconds until the last of them has had it."""
    begun = time.monotonic()
    held.release()
    for thread in waiting:
        thread.join()
    return '%.1f' % ((time.monotonic() - begun) * 1e3)


for line in sys.stdin:
    order, *arguments = line.split()
    if order == 'run':
        answer = run(int(arguments[0]), int(arguments[1]), float(arguments[2]))
    elif order == 'fill':
        answer = fill(int(arguments[0]))
    else:
        answer = drain()
    print(answer, flush=True)
if what != 'etcd':
    client.stop()
