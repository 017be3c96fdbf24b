import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * As many servers that use Curator.
 *
 * <p>{@code java Fleet.java HOSTS TIMEOUT_MS} takes the orders "grow" and "hold" that fleet.c
 * describes, from standard input.
 */
public class Fleet {
    static final List<CuratorFramework> clients = new ArrayList<>();
    static final List<InterProcessMutex> held = new ArrayList<>();

    static void grow(String hosts, int timeout, int servers) throws Exception {
        while (clients.size() < servers) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, timeout, timeout, new RetryOneTime(1000));
            client.start();
            clients.add(client);
            client.blockUntilConnected();
        }
    }

    static void hold(int holders) throws Exception {
        for (InterProcessMutex mutex : held) {
            mutex.release();
        }
        held.clear();
        for (int i = 0; i < holders; i++) {
            CuratorFramework client = clients.get((int) ((long) i * clients.size() / holders));
            InterProcessMutex mutex = new InterProcessMutex(client, "/fleet/curator-" + i);
            mutex.acquire();
            held.add(mutex);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null;) {
            String[] order = line.split(" ");
            int n = Integer.parseInt(order[1]);
            if (order[0].equals("grow")) {
                grow(args[0], Integer.parseInt(args[1]), n);
            } else {
                hold(n);
            }
            System.out.println(n);
        }
        System.exit(0);
    }
}
