// SPDX-License-Identifier: Apache-2.0
// One request with the JDK: Fetch client|connection URL. Prints the body; a failure is Java's own stack trace.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Fetch {
    public static void main(String[] args) throws Exception {
        URI uri = URI.create(args[1]);
        if (args[0].equals("client")) {
            HttpRequest request = HttpRequest.newBuilder(uri).build();
            System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
        } else {
            uri.toURL().openStream().transferTo(System.out);
        }
    }
}
