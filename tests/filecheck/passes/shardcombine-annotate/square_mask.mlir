// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// Self-attention with a mask has as many rows as keys, and each grows with others only: five dims with the rows, three with the keys.

// CHECK: #dist.rule<[S1, S2, S3], [S1, S2, S3], [S1, S2], [S1, S2, _], [S1, S4, _], [S1, S4, S3], [_, S2, S4] -> {S1: [gather(0), gather(0), gather(0)], S2: [gather(1), reduce(sum), reduce(sum)], S3: [reduce(sum), reduce(sum), gather(2)], S4: [reduce(sum), gather(1), gather(1)]}
func.func @main(%g: tensor<5x12x3xf64>, %o: tensor<5x12x3xf64>, %s: tensor<5x12xf64>, %q: tensor<5x12x4xf64>, %k: tensor<5x12x4xf64>,
                %v: tensor<5x12x3xf64>, %m: tensor<1x12x12xi1>) -> tensor<5x12x4xf64> {
  %dq, %dk, %dv = "attention.backward"(%g, %o, %s, %q, %k, %v, %m) <{scale = 0.5 : f64}>
      : (tensor<5x12x3xf64>, tensor<5x12x3xf64>, tensor<5x12xf64>, tensor<5x12x4xf64>, tensor<5x12x4xf64>, tensor<5x12x3xf64>, tensor<1x12x12xi1>)
      -> (tensor<5x12x4xf64>, tensor<5x12x4xf64>, tensor<5x12x3xf64>)
  func.return %dq : tensor<5x12x4xf64>
}
