// RUN: distir-opt %s -p ring-attention | filecheck %s

// A gradient by keys that every device needs whole is no sum of parts that go around: nothing is changed.

// CHECK: dist.allgather %k dim 0 over "cp"
// CHECK: "attention.backward"(%g, %o, %s, %q, %K, %V)
// CHECK-NOT: dist.exchange

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>, %g: tensor<4x8xf32, #dist.on<0:2>>, %o: tensor<4x8xf32, #dist.on<0:2>>, %s: tensor<4xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %dq, %dk, %dv = "attention.backward"(%g, %o, %s, %q, %K, %V) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>)
  %a = dist.allreduce sum %dk over "cp" : (tensor<8x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  func.return %a : tensor<8x8xf32, #dist.on<0:2>>
}
}
