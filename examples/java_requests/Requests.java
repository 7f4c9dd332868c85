// A Java service whose requests take memory outside the Java heap: zlib's, by Deflater and Inflater, and direct buffers.
// Under temporal-slab all of this is served by it, and the Java heap is not.
//
//     Requests COUNT         serves so many requests and says how much it packed
//     Requests COUNT wait    the same, then waits for a line of input, so that `tslab` can look at it
//
// Epochs.java is the same with an epoch a request, for Java 22 or later.
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Requests {
  static final int KEPT = 64; // packed texts

  // Packs the text into a buffer outside the heap. Both end() return zlib's memory now, not when Java collects garbage.
  static ByteBuffer pack(byte[] text) {
    ByteBuffer packed = ByteBuffer.allocateDirect(text.length + 64);
    Deflater deflater = new Deflater();
    try {
      deflater.setInput(text);
      deflater.finish();
      deflater.deflate(packed);
    } finally {
      deflater.end();
    }
    return packed.flip();
  }

  static byte[] unpack(ByteBuffer packed, int length) throws Exception {
    byte[] text = new byte[length];
    Inflater inflater = new Inflater();
    try {
      inflater.setInput(packed.duplicate());
      inflater.inflate(text);
    } finally {
      inflater.end();
    }
    return text;
  }

  public static void main(String[] words) throws Exception {
    Deque<ByteBuffer> kept = new ArrayDeque<>();
    int requests = Integer.parseInt(words[0]);
    long bytes = 0;
    for (int i = 0; i < requests; i++) {
      byte[] text = ("request " + i + " ").repeat(1 + i % 500).getBytes();
      ByteBuffer packed = pack(text);
      if (!Arrays.equals(text, unpack(packed, text.length))) throw new IllegalStateException("not what was packed");
      bytes += packed.remaining();
      kept.add(packed);
      if (kept.size() > KEPT) kept.remove();
    }
    System.out.println(requests + " requests, " + bytes + " bytes packed");
    if (words.length > 1) System.in.read();
  }
}
