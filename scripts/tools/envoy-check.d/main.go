// Envoy-check reads a bootstrap as JSON from standard input and holds it to Envoy's published schema: unknown fields
// are errors, at any depth, and so is what breaks a rule that the schema states (a range, a length, a missing part).
package main

import (
	"fmt"
	"io"
	"os"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type validated interface{ ValidateAll() error }

// check holds a message to its rules, and all that is packed in it: they do not reach into an Any by themselves.
func check(message proto.Message) error {
	return protorange.Range(message.ProtoReflect(), func(place protopath.Values) error {
		last := place.Index(-1)
		if kind := last.Step.Kind(); kind != protopath.RootStep && kind != protopath.AnyExpandStep {
			return nil
		}
		one, ok := last.Value.Interface().(protoreflect.Message).Interface().(validated)
		if !ok {
			return nil
		}
		if err := one.ValidateAll(); err != nil {
			return fmt.Errorf("%s: %w", place.Path, err)
		}
		return nil
	})
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		message := &bootstrap.Bootstrap{}
		if err = protojson.Unmarshal(text, message); err == nil {
			err = check(message)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
