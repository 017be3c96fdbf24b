import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * Curator's recipes, ZooKeeper's own WriteLock, and one plain node that everybody watches.
 *
 * <p>{@code java Peer.java HOSTS LIBRARY} takes the orders that Peer.pm describes, from
 * standard input. All threads of the process share one session.
 */
public class Peer {
    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    interface Library {
        Lock lock(int name) throws Exception;
    }

    static CuratorFramework connect(String hosts) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, 10000, 10000, new RetryOneTime(1000));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    static Lock of(InterProcessLock lock) {
        return new Lock() {
            public void acquire() throws Exception {
                lock.acquire();
            }

            public void release() throws Exception {
                lock.release();
            }
        };
    }

    static Library curator(String hosts) throws Exception {
        CuratorFramework client = connect(hosts);
        return name -> of(new InterProcessMutex(client, "/bench/curator-" + name));
    }

    /** So many locks as one. */
    static Library multi(String hosts, int names) throws Exception {
        CuratorFramework client = connect(hosts);
        return name -> {
            List<InterProcessLock> locks = new ArrayList<>();
            for (int i = 0; i < names; i++) {
                locks.add(new InterProcessMutex(client, "/bench/multi-" + name + "-" + i));
            }
            return of(new InterProcessMultiLock(locks));
        };
    }

    static Library semaphore(String hosts, int permits) throws Exception {
        CuratorFramework client = connect(hosts);
        return name -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/bench/semaphore-" + name, permits);
            return new Lock() {
                Lease lease;

                public void acquire() throws Exception {
                    lease = semaphore.acquire();
                }

                public void release() {
                    semaphore.returnLease(lease);
                }
            };
        };
    }

    /** To acquire is to put an item, to release is to take the oldest one. */
    static Library queue(String hosts) throws Exception {
        CuratorFramework client = connect(hosts);
        return name -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(client, "/bench/curator-queue-" + name);
            return new Lock() {
                public void acquire() throws Exception {
                    queue.offer(new byte[100]);
                }

                public void release() throws Exception {
                    queue.take();
                }
            };
        };
    }

    /** So many clients meet so many times; milliseconds of each. */
    static String meet(CuratorFramework client, int clients, int count) throws Exception {
        String path = "/bench/barrier-" + clients + "-" + System.nanoTime();
        long begun = System.nanoTime();
        start(clients, number -> {
            for (int i = 0; i < count; i++) {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, path + "-" + i, clients);
                barrier.enter();
            }
        }).await();
        return clients * count + " " + (System.nanoTime() - begun) / 1e6 / count;
    }

    static Library writeLock(String hosts) throws Exception {
        ZooKeeper client = new ZooKeeper(hosts, 10000, event -> {});
        return name -> {
            Semaphore granted = new Semaphore(0);
            WriteLock lock = new WriteLock(client, "/bench/writelock-" + name, ZooDefs.Ids.OPEN_ACL_UNSAFE);
            lock.setLockListener(new LockListener() {
                public void lockAcquired() {
                    granted.release();
                }

                public void lockReleased() {}
            });
            return new Lock() {
                public void acquire() throws Exception {
                    lock.lock();
                    granted.acquire();
                }

                public void release() {
                    lock.unlock();
                }
            };
        };
    }

    static final AtomicInteger watching = new AtomicInteger();

    /** What articles begin with: whoever makes the node has the lock, all others watch it. */
    static Library plain(String hosts) throws Exception {
        ZooKeeper client = new ZooKeeper(hosts, 10000, event -> {});
        return name -> new Lock() {
            final String path = "/bench/plain-" + name;

            public void acquire() throws Exception {
                for (;;) {
                    try {
                        client.create(path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
                        return;
                    } catch (KeeperException.NodeExistsException e) {
                        Semaphore gone = new Semaphore(0);
                        if (client.exists(path, event -> gone.release()) != null) {
                            watching.incrementAndGet();
                            gone.acquire();
                            watching.decrementAndGet();
                        }
                    }
                }
            }

            public void release() throws Exception {
                client.delete(path, -1);
            }
        };
    }

    interface Client {
        void run(int number) throws Exception;
    }

    /** So many threads at once; returns the latch that opens when the last has ended. */
    static CountDownLatch start(int count, Client client) {
        CountDownLatch ended = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int number = i;
            new Thread(null, () -> {
                try {
                    client.run(number);
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
                ended.countDown();
            }, "client", 256 << 10).start();
        }
        return ended;
    }

    /** Acquire and release for so long, each client the same name or, given "share", any. */
    static String run(Library library, int clients, int names, double seconds, double share, int home)
            throws Exception {
        long[][] times = new long[clients][];
        long end = System.nanoTime() + (long) (seconds * 1e9);
        start(clients, number -> {
            Lock[] locks = new Lock[2 * names];
            long[] mine = new long[1024];
            int n = 0;
            for (long begun = System.nanoTime(); begun < end;) {
                ThreadLocalRandom random = ThreadLocalRandom.current();
                int name = number % names;
                if (share >= 0) {
                    name = 2 * random.nextInt(names) + (random.nextDouble() < share ? home : 1 - home);
                }
                if (locks[name] == null) {
                    locks[name] = library.lock(name);
                }
                locks[name].acquire();
                locks[name].release();
                long now = System.nanoTime();
                if (n == mine.length) {
                    mine = Arrays.copyOf(mine, 2 * n);
                }
                mine[n++] = now - begun;
                begun = now;
            }
            times[number] = Arrays.copyOf(mine, n);
        }).await();
        long[] all = Arrays.stream(times).flatMapToLong(Arrays::stream).sorted().toArray();
        return all.length + " " + all[all.length / 2] / 1e3;
    }

    /** Acquire so many times, and release nothing. */
    static String put(Library library, int count) throws Exception {
        Lock lock = library.lock(0);
        for (int i = 0; i < count; i++) {
            lock.acquire();
        }
        return "ok";
    }

    static Lock held;
    static CountDownLatch waiting;

    /** Take a lock and let so many threads queue for it. */
    static String fill(Library library, boolean plain, int waiters) throws Exception {
        held = library.lock(1000);
        held.acquire();
        waiting = start(waiters, number -> {
            Lock lock = library.lock(1000);
            lock.acquire();
            lock.release();
        });
        // those who watch one node share one watch, so the ensemble does not know how many
        while (plain && watching.get() < waiters) {
            Thread.sleep(10);
        }
        return "ok";
    }

    /** Let the lock go; milliseconds until the last of them has had it. */
    static String drain() throws Exception {
        long begun = System.nanoTime();
        held.release();
        waiting.await();
        return String.valueOf((System.nanoTime() - begun) / 1e6);
    }

    public static void main(String[] args) throws Exception {
        Library library = args[1].equals("writelock") ? writeLock(args[0])
                : args[1].equals("plain") ? plain(args[0])
                : args[1].equals("multi10") ? multi(args[0], 10)
                : args[1].equals("multi100") ? multi(args[0], 100)
                : args[1].equals("semaphore") ? semaphore(args[0], 4)
                : args[1].equals("curator-queue") ? queue(args[0])
                : curator(args[0]);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null;) {
            String[] order = line.split(" ");
            switch (order[0]) {
                case "run":
                    System.out.println(run(library, Integer.parseInt(order[1]), Integer.parseInt(order[2]),
                            Double.parseDouble(order[3]), order.length > 4 ? Double.parseDouble(order[4]) : -1,
                            order.length > 5 ? Integer.parseInt(order[5]) : 0));
                    break;
                case "meet":
                    System.out.println(meet(connect(args[0]), Integer.parseInt(order[1]), Integer.parseInt(order[2])));
                    break;
                case "put":
                    System.out.println(put(library, Integer.parseInt(order[1])));
                    break;
                case "fill":
                    System.out.println(fill(library, args[1].equals("plain"), Integer.parseInt(order[1])));
                    break;
                default:
                    System.out.println(drain());
            }
        }
        System.exit(0);
    }
}
