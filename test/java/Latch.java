// A participant in an election: Curator's LeaderLatch, told what to do by lines of
// standard input.  Arguments: connect string, path, participant id, session timeout (ms).

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.retry.RetryOneTime;

public class Latch {
    public static void main(String[] args) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(args[0], Integer.parseInt(args[3]), 600000, new RetryOneTime(100));
        client.start();
        LeaderLatch latch = new LeaderLatch(client, args[1], args[2]);
        latch.start();

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            switch (line) {
                case "has":
                    System.out.println(latch.hasLeadership());
                    break;
                case "leader":
                    System.out.println(latch.getLeader().getId());
                    break;
                case "participants":
                    System.out.println(latch.getParticipants().stream().map(Participant::getId)
                        .collect(Collectors.joining(" ")));
                    break;
                case "close":
                    latch.close();
                    client.close();
                    System.out.println("closed");
                    break;
            }
        }
        System.exit(0);
    }
}
