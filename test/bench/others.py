#!/usr/bin/python3
"""Locks of several systems: `others.py SYSTEM ADDRESS...` takes orders from standard input,
a line each, and answers each with a line:

    run CLIENTS NAMES SECONDS   acquire and release; client i always the name i % NAMES.
            Answer: how many times; the median and the 99th percentile of a cycle in us; how
            often a client got the lock that another one had had; the shares of the clients
            that got least and most, in %
    hold    a client has a lock, and another one waits for it.  Answer: the first one's process
    passed  wait until the second one has it.  Answer: when, in s of the monotonic clock
    told    the first one releases it.  Answer: the error that it gets, or "nothing"; "gone"
            where there is no such client any more

Each client is a process with a session of its own; they are spread over the addresses.
Each lock is the recipe of its system or its library, with the defaults of that."""
import logging
import multiprocessing
import random
import statistics
import sys
import time
import uuid

system, *addresses = sys.argv[1:]
if system == 'zklock':
    import psycopg2
elif system == 'kazoo':
    import kazoo.client
elif system == 'etcd':
    import grpc
else:
    import redis
TTL = 10  # s, of a lock or a session
logging.disable()


def spread(number, places):
    return places[number % len(places)]


class Zklock:
    def __init__(self, number, name):
        session = psycopg2.connect(spread(number, addresses))
        session.autocommit = True
        self.execute = session.cursor().execute
        self.name = name

    def acquire(self):
        self.execute("BEGIN; SELECT zk_lock('%s')" % self.name)

    def release(self):
        self.execute('COMMIT')


class Kazoo:
    def __init__(self, number, name):
        client = kazoo.client.KazooClient(spread(number, addresses), timeout=TTL)
        client.start()
        lock = client.Lock('/bench/' + name)
        self.acquire, self.release = lock.acquire, lock.release


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def encode(*fields):
    """A protobuf message with these fields, from number 1 on."""
    message = b''
    for number, value in enumerate(fields, 1):
        if isinstance(value, int):
            message += varint(number << 3) + varint(value)
        else:
            message += varint(number << 3 | 2) + varint(len(value)) + value
    return message


def decode(message):
    """The fields of a protobuf message, by their numbers."""
    rest, fields = iter(message), {}

    def number():
        n = shift = 0
        for byte in rest:
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return n

    while tag := number():
        n = number()
        fields[tag >> 3] = n if tag & 7 == 0 else bytes(next(rest) for _ in range(n))
    return fields


class Etcd:
    """The lock service of etcd, which is its Mutex; what Debian has for Python does not know it.
    The clients ask followers, as those of ZooKeeper do."""

    def __init__(self, number, name):
        channels = [grpc.insecure_channel(address) for address in addresses]
        states = [decode(channel.unary_unary('/etcdserverpb.Maintenance/Status')(b'')) for channel in channels]
        channel = spread(number, [c for c, s in zip(channels, states) if decode(s[1])[2] != s[4]])
        self.lock, self.unlock, grant = (channel.unary_unary(method) for method in (
            '/v3lockpb.Lock/Lock', '/v3lockpb.Lock/Unlock', '/etcdserverpb.Lease/LeaseGrant'))
        lease = decode(grant(encode(TTL)))[2]

        def beats():
            while True:
                yield encode(lease)
                time.sleep(TTL / 3)

        self.kept = channel.stream_stream('/etcdserverpb.Lease/LeaseKeepAlive')(beats())
        self.request = encode(name.encode(), lease)

    def acquire(self):
        self.key = decode(self.lock(self.request))[2]

    def release(self):
        self.unlock(encode(self.key))


class Redis:
    """One node, and the lock of its Python library."""

    def __init__(self, _, name):
        host, port = addresses[0].split(':')
        lock = redis.Redis(host, int(port)).lock(name, timeout=TTL)
        self.acquire, self.release = lock.acquire, lock.release


class Redlock:
    """As https://redis.io/docs/latest/develop/use/patterns/distributed-locks/ describes it:
    all nodes are asked at once.  Before the next attempt it waits for up to 200 ms, as the
    implementation does with which that page begins.  All nodes answer here."""

    DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

    def __init__(self, _, name):
        nodes = [redis.Redis(*address.split(':'), single_connection_client=True) for address in addresses]
        self.sha = [node.script_load(self.DELETE) for node in nodes][0]
        self.connections = [node.connection for node in nodes]
        self.name = name

    def ask(self, *command):
        for connection in self.connections:
            connection.send_command(*command)
        answers = [connection.read_response() for connection in self.connections]
        return sum(map(bool, answers))

    def acquire(self):
        while True:
            self.token = uuid.uuid4().hex
            begun = time.monotonic()
            given = self.ask('SET', self.name, self.token, 'NX', 'PX', TTL * 1000)
            left = begun + TTL - (TTL * 0.01 + 0.002) - time.monotonic()
            if given > len(addresses) // 2 and left > 0:
                return
            self.release()
            time.sleep(random.uniform(0, 0.2))

    def release(self):
        self.ask('EVALSHA', self.sha, 1, self.name, self.token)


Lock = {c.__name__.lower(): c for c in (Zklock, Kazoo, Etcd, Redis, Redlock)}[system]


def client(target, *arguments):
    """A process that does it, and our end of the pipe that it gets."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(its, *arguments), daemon=True)
    process.start()
    its.close()
    return process, ours


def cycles(pipe, number, name, ready, seconds):
    lock = Lock(number, name)
    lock.acquire()
    lock.release()
    ready.wait()
    seen = []
    now = time.monotonic()
    end = now + seconds
    while now < end:
        begun = now
        lock.acquire()
        held = time.monotonic()
        lock.release()
        now = time.monotonic()
        seen.append((held, name, number, now - begun))
    pipe.send(seen)


def run(clients, names, seconds):
    ready = multiprocessing.Barrier(clients)
    running = [client(cycles, i, 'run-%d' % (i % names), ready, seconds) for i in range(clients)]
    seen = [pipe.recv() for _, pipe in running]
    for process, _ in running:
        process.join()
    shares = [100 * len(cycle) / sum(map(len, seen)) for cycle in seen]
    seen = sorted(sum(seen, []))
    took = [1e6 * cycle[3] for cycle in seen]
    had, passes = {}, 0
    for _, name, number, _ in seen:
        passes += had.setdefault(name, number) != number
        had[name] = number
    return '%d %.1f %.1f %d %.1f %.1f' % (
        len(seen), statistics.median(took), statistics.quantiles(took, n=100)[98], passes, min(shares), max(shares))


def one(pipe, number, name):
    """Acquires, says when, and releases when it is told to."""
    lock = Lock(number, name)
    lock.acquire()
    pipe.send(time.monotonic())
    pipe.recv()
    try:
        lock.release()
        pipe.send('nothing')
    except Exception as error:
        pipe.send(type(error).__name__)


def hold():
    name = 'hold-' + uuid.uuid4().hex
    first = client(one, 0, name)
    first[1].recv()
    second = client(one, 1, name)
    time.sleep(1)  # it waits
    return first, second


def told():
    answers = []
    for process, pipe in (first, second):
        try:
            pipe.send('release')
            answers.append(pipe.recv())
        except (EOFError, OSError):
            answers.append('gone')
        process.join()
    return answers[0]


for line in sys.stdin:
    order, *arguments = line.split()
    if order == 'run':
        answer = run(int(arguments[0]), int(arguments[1]), float(arguments[2]))
    elif order == 'hold':
        first, second = hold()
        answer = first[0].pid
    elif order == 'passed':
        answer = second[1].recv()
    else:
        answer = told()
    print(answer, flush=True)
