import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.Permission;

/**
 * Calls the main methods of Cassandra's tools one after the other in one Java machine, as its start takes
 * longer than most of what they do.
 *
 * <p>A call comes in as lines: the name of the class, the number of arguments, each argument. The answer is
 * the exit status as four bytes, then the output and the errors, each behind its length in four bytes.
 */
public final class Tools {
    /** What ends a tool that wants to end the Java machine; an Error, which tools do not catch. */
    private static final class Exit extends Error {
        private static final long serialVersionUID = 1;

        Exit() {
            super(null, null, false, false);
        }
    }

    /** The first status that the tool of now wanted to end with; null before. */
    private static volatile Integer status;

    private Tools() {}

    @SuppressWarnings("removal")
    private static void holdBackExit() {
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkPermission(Permission permission) {}

            @Override
            public void checkPermission(Permission permission, Object context) {}

            @Override
            public void checkExit(int wanted) {
                if (status == null) {
                    status = wanted;
                }
                throw new Exit();
            }
        });
    }

    /** Its status, as of a Java machine of its own. */
    private static int run(String tool, String[] arguments) {
        status = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException | LinkageError thrown) {
            thrown.printStackTrace();
            status = 1;
        }
        return status == null ? 0 : status;
    }

    private static PrintStream into(ByteArrayOutputStream bytes) {
        return new PrintStream(bytes, true, StandardCharsets.UTF_8);
    }

    private static void send(DataOutputStream answers, ByteArrayOutputStream bytes) throws IOException {
        answers.writeInt(bytes.size());
        bytes.writeTo(answers);
    }

    public static void main(String[] none) throws IOException {
        DataOutputStream answers = new DataOutputStream(System.out);
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        holdBackExit();
        for (String tool = calls.readLine(); tool != null; tool = calls.readLine()) {
            String[] arguments = new String[Integer.parseInt(calls.readLine())];
            for (int at = 0; at < arguments.length; at++) {
                arguments[at] = calls.readLine();
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setOut(into(out));
            System.setErr(into(errors));
            int ended = run(tool, arguments);
            System.out.flush();
            System.err.flush();
            answers.writeInt(ended);
            send(answers, out);
            send(answers, errors);
            answers.flush();
        }
        // Threads that tools left would keep it.
        Runtime.getRuntime().halt(0);
    }
}
