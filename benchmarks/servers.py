"""The servers that the gateway is measured with, as a program: it prints their ports and serves until it is killed."""

from __future__ import annotations

DOWNLOAD_MIB = 2048

SERVERS = f"""
import json, socket, socketserver, ssl, sys, threading

class Download(socketserver.BaseRequestHandler):
    def handle(self):
        piece = bytes(1 << 20)
        for _ in range({DOWNLOAD_MIB}):
            self.request.sendall(piece)

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096):
            self.request.sendall(data)

class Requests(socketserver.BaseRequestHandler):
    def handle(self):
        line, rest = context.wrap_socket(self.request, server_side=True), b""
        while data := line.recv(65536):
            rest += data
            while b"\\r\\n\\r\\n" in rest:
                rest = rest.partition(b"\\r\\n\\r\\n")[2]
                line.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

class Server(socketserver.ThreadingTCPServer):
    daemon_threads, request_queue_size = True, 1024
    def handle_error(self, request, client_address):
        pass

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
servers = {{name: Server(("127.0.0.1", 0), kind) for name, kind in
    (("download", Download), ("echo", Echo), ("tls", Requests))}}
for server in servers.values():
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({{name: server.server_address[1] for name, server in servers.items()}}), flush=True)
sys.stdin.read()
"""
