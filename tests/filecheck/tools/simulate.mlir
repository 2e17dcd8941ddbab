// What `distir simulate` says of a pipeline of two stages. Each compute operation takes 1 us and a send 0.5 us, on both
// ends: x 0-1, send 1-1.5, y 1.5-2.5. Device 0 holds the whole batch and its result, 2 x 128 bytes; device 1 the
// message and its result.
// RUN: distir simulate %s --machine %S/../passes/Inputs/unit.toml | filecheck %s
// RUN: distir simulate %s --machine %S/../passes/Inputs/unit.toml --json | filecheck %s --check-prefix=JSON

// CHECK:      machine unit, 2 devices, analytic cost model
// CHECK-NEXT: makespan 2.5 us
// CHECK-NEXT: throughput 1.6e+06 samples/s (batch 4)
// CHECK-NEXT: peak memory 256 bytes on device 0, 0.0% of 1 MiB
// CHECK-NEXT: least peak 256 bytes on device 0
// CHECK-NEXT: communication 1 send
// CHECK-NEXT: devices compute 40.0%, communication 20.0%, idle 40.0%

// CHECK:      time of an average device, and memory of the fullest, by module
// CHECK-NEXT: module time of makespan communication memory at peak
// CHECK-NEXT: (main) 1.5 us 60.0% 33% 128 bytes
// CHECK-NEXT: (input) 0 ns 0.0% 128 bytes

// CHECK:      peak of device 0: 256 bytes, during onnx.Relu a
// CHECK-NEXT: 128 bytes activation onnx.Relu a
// CHECK-NEXT: 128 bytes input x
// CHECK:      peak of device 1: 256 bytes, during onnx.Relu y
// CHECK-NEXT: 128 bytes activation dist.send b
// CHECK-NEXT: 128 bytes activation onnx.Relu y

// JSON:      "makespan_seconds": 2.5e-06,
// JSON-NEXT: "batch_size": 4,
// JSON-NEXT: "throughput_per_second": 1600000.0,
// JSON-NEXT: "peak_memory_bytes": [
// JSON-NEXT:   256,
// JSON-NEXT:   256
// JSON-NEXT: ],
// JSON-NEXT: "memory_capacity_bytes": 1048576,
// JSON-NEXT: "reserved_memory_bytes": 256,
// JSON-NEXT: "fits_in_memory": true,
// JSON-NEXT: "communication_count": {
// JSON-NEXT:   "send": 1
// JSON-NEXT: },

!x0 = tensor<4x8xf32, #dist.on<0>>
!x1 = tensor<4x8xf32, #dist.on<1>>

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%x: !x0 {dist.name = "x", dist.role = "input"}) -> (!x1 {dist.name = "y", dist.role = "output"}) {
    %a = "onnx.Relu"(%x) : (!x0) -> !x0
    %b = dist.send %a to 1 : !x0 -> !x1
    %y = "onnx.Relu"(%b) : (!x1) -> !x1
    func.return %y : !x1
  }
}
