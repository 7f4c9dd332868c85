// Starts, compiles itself, runs threads and writes off the heap, where the JVM's own malloc serves.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.TreeMap;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

public class Start {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        var map = new TreeMap<String, Integer>();
        for (int i = 0; i < count; i++) map.merge(Integer.toHexString(i * 7919 % 65537), i, Integer::sum);
        var threads = new ArrayList<Thread>();
        long[] sums = new long[4];
        for (int part = 0; part < sums.length; part++) {
            int mine = part;
            threads.add(new Thread(() -> {
                for (int i = 0; i < count / 50; i++) {
                    var deflater = new Deflater();
                    deflater.setInput(("word " + i % 100 + mine).getBytes());
                    deflater.finish();
                    sums[mine] += deflater.deflate(new byte[200]);
                    deflater.end();
                    ByteBuffer.allocateDirect(1 + i % 1000).put(0, (byte) i);
                }
            }));
        }
        for (var thread : threads) thread.start();
        for (var thread : threads) thread.join();
        var crc = new CRC32();
        crc.update(map.toString().getBytes());
        System.out.println(map.size() + " " + crc.getValue() + " " + sums[0] + " " + sums[3]);
        System.exit(12);
    }
}
