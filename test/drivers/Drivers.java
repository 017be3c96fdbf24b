// Drivers HOST PORT USER - the code of doc/drivers.md, which stands where it says so below.  A
// line "ACTION NAME" is carried out, and answered by one line.
import java.io.*;
import java.sql.*;

public class Drivers {
    // CODE OF THE PAGE

    static int attempts;

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    static boolean holds(Connection connection, String name) throws SQLException {
        try (Statement statement = connection.createStatement();
             ResultSet result = statement.executeQuery("SELECT zk_token('" + name + "') IS NOT NULL")) {
            result.next();
            return result.getBoolean(1);
        }
    }

    static String work(Connection connection) throws SQLException {
        attempts++;
        execute(connection, "INSERT INTO done VALUES (1)");
        execute(connection, "SELECT pg_advisory_xact_lock_shared(1)");
        execute(connection, "INSERT INTO done VALUES (2)");
        return "done";
    }

    static String act(String url, String action, String name) throws SQLException {
        if (action.equals("locked"))
            return locked(url, name, Drivers::work);
        if (action.equals("session"))
            return lockedSession(url, name, Drivers::work);
        try (Connection connection = DriverManager.getConnection(url)) {
            connection.setAutoCommit(action.equals("autocommit"));
            execute(connection, "SELECT zk_lock('" + name + "')");
            if (action.equals("autocommit"))
                return holds(connection, name) ? "True" : "False";
            if (!holds(connection, name))
                return "not held";
            execute(connection, "CALL zk_lock_session('" + name + "')");
            return "done";
        }
    }

    public static void main(String[] args) throws IOException {
        String url = "jdbc:postgresql://" + args[0] + ":" + args[1] + "/postgres?user=" + args[2];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            String answer;
            attempts = 0;
            try {
                answer = act(url, words[0], words[1]);
            } catch (SQLException e) {
                answer = e.getSQLState();
            }
            System.out.println(answer + " " + attempts);
            System.out.flush();
        }
    }
}
