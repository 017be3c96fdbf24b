// A user of a lock: Curator's InterProcessMutex, told what to do by lines of standard input.
// Arguments: connect string, path, session timeout (ms).
//
//   acquire      wait for it, and answer "true"
//   acquire MS   the same for so long, else "false"
//   release      ... and answer "released", or the exception
//   has          has this process it?
//   revoke       ask the first participant to give it up, by Curator's Revoker

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryForever;

public class Mutex {
    static String obey(CuratorFramework client, InterProcessMutex mutex, String[] order) throws Exception {
        switch (order[0]) {
            case "acquire":
                if (order.length > 1) {
                    return String.valueOf(mutex.acquire(Long.parseLong(order[1]), TimeUnit.MILLISECONDS));
                }
                mutex.acquire();
                return "true";
            case "release":
                mutex.release();
                return "released";
            case "has":
                return String.valueOf(mutex.isAcquiredInThisProcess());
            default:
                Revoker.attemptRevoke(client, mutex.getParticipantNodes().iterator().next());
                return "asked";
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(args[0], Integer.parseInt(args[2]), 600000, new RetryForever(100));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            String answer;
            try {
                answer = obey(client, mutex, line.split(" "));
            } catch (Exception e) {
                answer = e.toString();
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
