// The one program of the test cluster's own images: the pause of a pod, and something to talk and to listen.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		pause()
	}
	switch command := os.Args[1]; command {
	case "pause":
		pause()
	case "serve":
		serve(os.Args[2])
	case "get":
		try(get, os.Args[2])
	case "resolve":
		try(resolve, os.Args[2])
	default:
		fmt.Println("unknown:", command)
		os.Exit(2)
	}
}

// pause is process 1 of a pod: it holds the pod's namespaces, reaps what is orphaned there, and goes when told to.
func pause() {
	asked := make(chan os.Signal, 16)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for found := range asked {
		if found != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve(address string) {
	name, _ := os.Hostname()
	fmt.Println("serving", address)
	fmt.Println(http.ListenAndServe(address, http.HandlerFunc(func(answer http.ResponseWriter, asked *http.Request) {
		fmt.Fprintf(answer, "hello from %s to %s\n", name, asked.RemoteAddr)
	})))
	os.Exit(1)
}

// try asks until there is an answer; a name or a service may need seconds to be known everywhere.
func try(ask func(string) (string, error), what string) {
	var err error
	for range 120 {
		var said string
		if said, err = ask(what); err == nil {
			fmt.Println(said)
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	fmt.Println(err)
	os.Exit(1)
}

func get(url string) (string, error) {
	client := http.Client{Timeout: 3 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", string(content)), err
}

func resolve(name string) (string, error) {
	addresses, err := net.LookupHost(name)
	return fmt.Sprint(name, " => ", addresses), err
}
