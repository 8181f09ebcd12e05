#!/bin/sh
# Certificates for the tests of TLS, made into a folder: ca.pem signed server.pem (127.0.0.1, localhost) and
# client.pem; other_ca.pem signed nothing. Each X.pem has its X.key.
set -eu
cd "$1"
make() { # name, further arguments
  name=$1
  shift
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$name" \
    -keyout "$name.key" -out "$name.pem" "$@" 2>openssl.log || { cat openssl.log >&2; exit 1; }
}
make ca
make other_ca
make server -CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE \
  -addext subjectAltName=IP:127.0.0.1,DNS:localhost
make client -CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE
