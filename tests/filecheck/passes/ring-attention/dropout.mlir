// RUN: distir-opt %s -p ring-attention | filecheck %s

// What is dropped is drawn at the positions of the keys that a device has at each step.

// CHECK: [[first:%\S+]] = dist.slice %c [0:4] {dist.by_rank = #dist.by_rank<["cp"], [{starts = array<i64: 0>, stops = array<i64: 4>}, {starts = array<i64: 4>, stops = array<i64: 8>}]>}
// CHECK: "attention.forward"(%q, %k, %v, %key, %r, [[first]]) <{scale = 5.000000e-01 : f64, dropout = 1.000000e-01 : f64}>
// CHECK: [[second:%\S+]] = dist.slice %c [4:8] {dist.by_rank = #dist.by_rank<["cp"], [{starts = array<i64: 4>, stops = array<i64: 8>}, {starts = array<i64: 0>, stops = array<i64: 4>}]>}
// CHECK: "attention.forward"(%q, {{%\S+}}, {{%\S+}}, %key, %r, [[second]])

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>, %key: tensor<i64, #dist.on<0:2>>, %r: tensor<4xi64, #dist.on<0:2>>, %c: tensor<8xi64, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V, %key, %r, %c) <{scale = 0.5 : f64, dropout = 0.1 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<i64, #dist.on<0:2>>, tensor<4xi64, #dist.on<0:2>>, tensor<8xi64, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o : tensor<4x8xf32, #dist.on<0:2>>
}
}
