// A policy for cartpole as a program: each line on standard input is answered by a line on standard output.
//
//	CGO_ENABLED=0 go build -o policy policy.go
//	curl -F model=@policy -F dataset=cartpole http://localhost:5000/v1/simulations
package main

import (
	"encoding/json"
	"log"
	"os"
)

// Request is one of load, reset and act; an observation that is not a number is null.
type Request struct {
	Load *struct {
		Action struct{ Shape []int }
	}
	Reset *struct{ Seed uint64 }
	Act   []float64
}

func main() {
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var request Request
		if err := requests.Decode(&request); err != nil {
			return
		}
		var answer any = struct{}{}
		switch {
		case request.Load != nil && len(request.Load.Action.Shape) != 1:
			answer = map[string]string{"error": "this policy pushes one cart"}
		case request.Reset != nil:
			log.Printf("a scenario begins with seed %d", request.Reset.Seed) // standard error is the log
		case len(request.Act) == 4:
			push := 0.0
			if request.Act[2]+0.5*request.Act[3] > 0 {
				push = 1
			}
			answer = map[string][]float64{"action": {push}}
		}
		if err := answers.Encode(answer); err != nil {
			return
		}
	}
}
