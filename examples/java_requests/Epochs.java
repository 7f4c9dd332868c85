// An epoch a request, by Java's foreign functions (Java 22 or later) and without a line of C: memory that native code
// takes by malloc inside a request's scope is counted for that request, and what outlives the request is named.
//
//     LD_PRELOAD=libtslab.so.0 java --enable-native-access=ALL-UNNAMED Epochs.java
//
// A scope belongs to a thread, so the work stays on one platform thread. The JVM itself allocates on this thread, too, so
// the epoch is closed and never destroyed: what outlives a close stays valid.
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.util.zip.Deflater;

public class Epochs {
  static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
  static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;

  // The first words of tslab_epoch_report; the rest is not read here.
  static final MemoryLayout REPORT = MemoryLayout.structLayout(LONG.withName("epoch"), LONG.withName("threads_inside"),
      LONG.withName("live_blocks"), LONG.withName("live_bytes"), MemoryLayout.sequenceLayout(12, LONG));
  static final long LIVE_BYTES = REPORT.byteOffset(PathElement.groupElement("live_bytes"));

  static final MethodHandle OPEN = find("tslab_epoch_open", FunctionDescriptor.of(LONG, ValueLayout.ADDRESS));
  static final MethodHandle ENTER = find("tslab_epoch_enter", FunctionDescriptor.of(INT, LONG));
  static final MethodHandle LEAVE = find("tslab_epoch_leave", FunctionDescriptor.of(INT, LONG));
  static final MethodHandle CLOSE = find("tslab_epoch_close", FunctionDescriptor.of(INT, LONG, ValueLayout.ADDRESS));

  // The loader gives the library that is preloaded, since it has this soname. (Linker.defaultLookup knows libc alone.)
  static MethodHandle find(String name, FunctionDescriptor type) {
    MemorySegment function = SymbolLookup.libraryLookup("libtslab.so.0", Arena.global()).find(name).orElseThrow();
    return Linker.nativeLinker().downcallHandle(function, type);
  }

  interface Work { void run() throws Throwable; }

  // Runs work in an epoch of its own. Returns how many bytes of it are live after its end.
  static long inEpoch(Arena arena, MemorySegment label, Work work) throws Throwable {
    MemorySegment report = arena.allocate(REPORT);
    long epoch = (long) OPEN.invokeExact(label);
    if (epoch == 0 || (int) ENTER.invokeExact(epoch) != 0) throw new IllegalStateException("no epoch");
    try {
      work.run();
    } finally {
      int left = (int) LEAVE.invokeExact(epoch), closed = (int) CLOSE.invokeExact(epoch, report);
      if (left != 0 || closed != 0) throw new IllegalStateException("leave " + left + ", close " + closed);
    }
    return report.get(LONG, LIVE_BYTES);
  }

  static void compress() {
    Deflater deflater = new Deflater();
    deflater.setInput("a request ".repeat(1000).getBytes());
    deflater.finish();
    deflater.deflate(new byte[20_000]);
    deflater.end();
  }

  public static void main(String[] words) throws Throwable {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment label = arena.allocateFrom("request");
      compress(); // loads zlib, so that what it keeps for good belongs to no request
      long clean = 0;
      for (int i = 0; i < 100; i++) clean = inEpoch(arena, label, Epochs::compress);
      ByteBuffer[] kept = new ByteBuffer[1];
      long held = inEpoch(arena, label, () -> kept[0] = ByteBuffer.allocateDirect(4 << 20));
      kept[0].put(0, (byte) 1); // what outlives its epoch stays valid
      System.out.println("the request that ended clean left " + (clean >> 20) + " MiB, the one that keeps a buffer "
          + (held >> 20) + " MiB");
      if (clean >= 1 << 20 || held < 4 << 20) System.exit(1);
    }
  }
}
