#!/usr/bin/env bash
# Builds a real Kubernetes control plane from its published Go modules: kube-apiserver, kube-controller-manager, kube-scheduler, and
# kwok, which plays the nodes. For scripts/test_kubernetes.sh. Needs go; 3 to 10 minutes on 2 cores, 350 MB.
#   scripts/build_kubernetes.sh [OUT_DIR]      [build/kubernetes]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/kubernetes}; version=${KUBERNETES_VERSION:-1.36.3}; kwok=${KWOK_VERSION:-0.7.0}
mkdir -p "$out"; out=$(cd "$out" && pwd)
command -v go > /dev/null || { echo "go is needed: https://go.dev/dl" >&2; exit 1; }
source=$(mktemp -d); trap 'rm -rf "$source"' EXIT; cd "$source"
export GOFLAGS=-mod=mod
go mod download "k8s.io/kubernetes@v$version"
upstream=$(go env GOMODCACHE)/k8s.io/kubernetes@v$version
{
  echo "module testcontrolplane"; grep '^go ' "$upstream/go.mod"; grep '^godebug default' "$upstream/go.mod" || true
  echo "require k8s.io/kubernetes v$version"
  awk '/=> \.\/staging/ {print $1}' "$upstream/go.mod" | while read -r module; do echo "replace $module => $module v0.${version#1.}"; done
} > go.mod
add_command() {  # folder, constructor
  mkdir -p "$1"
  cat > "$1/main.go" <<GO
package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/$1/app"
)

func main() { os.Exit(cli.Run(app.$2())) }
GO
}
add_command kube-apiserver NewAPIServerCommand
add_command kube-controller-manager NewControllerManagerCommand
add_command kube-scheduler NewSchedulerCommand
go mod tidy
minor=$(echo "$version" | cut -d. -f2)
prefix="-X k8s.io/component-base/version"
for command in kube-apiserver kube-controller-manager kube-scheduler; do
  echo "building $command"
  go build -trimpath -ldflags "-s -w $prefix.gitVersion=v$version $prefix.gitMajor=1 $prefix.gitMinor=$minor" -o "$out/$command" "./$command"
done
echo "building kwok"
GOFLAGS= GOBIN="$out" go install -trimpath -ldflags '-s -w' "sigs.k8s.io/kwok/cmd/kwok@v$kwok"
ls -la "$out"
