// The service that jvm.py loads. A request packs a text and unpacks it, by zlib's native memory, and keeps the packed
// form in a buffer outside the heap; a thread keeps its last forty.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Service {
  static final int THREADS = 8, REQUESTS = 30, KEPT = 40;
  static final ThreadLocal<ArrayDeque<ByteBuffer>> kept = ThreadLocal.withInitial(ArrayDeque::new);

  static byte[] text(Random numbers) {
    byte[] made = new byte[1000 + numbers.nextInt(60_000)];
    for (int i = 0; i < made.length; i++) made[i] = (byte) ('a' + numbers.nextInt(16));
    return made;
  }

  static int serve(int request) throws Exception {
    byte[] text = text(new Random(request));
    byte[] packed = new byte[text.length + 100], back = new byte[text.length];
    Deflater deflater = new Deflater(1);
    deflater.setInput(text);
    deflater.finish();
    int length = deflater.deflate(packed);
    deflater.end();
    ByteBuffer outside = ByteBuffer.allocateDirect(length);
    outside.put(packed, 0, length).flip();
    ArrayDeque<ByteBuffer> mine = kept.get();
    mine.add(outside);
    if (mine.size() > KEPT) mine.remove();
    Inflater inflater = new Inflater();
    inflater.setInput(mine.peekLast().duplicate());
    int got = inflater.inflate(back);
    inflater.end();
    if (got != text.length || !Arrays.equals(text, back)) throw new IllegalStateException("not what was packed");
    return got;
  }

  public static void main(String[] words) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = input.readLine()) != null;) {
      List<Callable<Integer>> jobs = new ArrayList<>();
      for (int i = 0; i < THREADS * REQUESTS; i++) {
        int request = Integer.parseInt(line) * THREADS * REQUESTS + i;
        jobs.add(() -> serve(request));
      }
      for (Future<Integer> done : threads.invokeAll(jobs)) done.get();
      System.gc(); // frees the buffers that nothing holds; else what is resident would tell when it last ran
      System.out.println("served");
    }
    threads.shutdown();
  }
}
